"""Whether a benchmark reaches its goals, as all of them say it."""


def goal_line(reached: bool, what: str) -> str:
    """Whether a goal is reached, and which."""
    return f"goal {'reached' if reached else 'MISSED'}: {what}"
