"""Whether a benchmark reaches its goals, in the words that all share."""


def goal_line(reached: bool, what: str) -> str:
    """Whether a goal is reached, and which."""
    return f"goal {'reached' if reached else 'MISSED'}: {what}"
