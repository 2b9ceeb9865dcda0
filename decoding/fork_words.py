"""In words, what one run does differently from another."""

from decoding.methods import METHODS, PRESETS
from decoding.trace import RunTrace, Setting

SAMPLING = ("temperature", "top_p", "draft_temperature", "seed")


def change_words(before: RunTrace, after: RunTrace) -> str:
    """`node_budget 64 → 16 · seed 0 → 3`; another method is named with the settings that its name does not say."""
    words = []
    if before.method != after.method:
        words.append(f"{before.label} → {_named(after)}")
    else:
        words += _differences(before.settings, after.settings)
    words += _drafts(before, after)
    one, other = ({name: getattr(run.sampling, name) for name in SAMPLING} for run in (before, after))
    return " · ".join(words + _differences(one, other))


def _differences(before, after) -> list[str]:
    changed = [name for name in after if name in before and before[name] != after[name] and name != "draft_head"]
    return [f"{name} {_written(before[name])} → {_written(after[name])}" for name in changed]


def _drafts(before: RunTrace, after: RunTrace) -> list[str]:
    """Another draft, by its name: the pair's draft model is no setting."""
    drafting = after.method not in METHODS or METHODS[after.method].drafter.uses_draft_model
    same = before.settings.get("draft_head") == after.settings.get("draft_head")
    return [] if same or not drafting else [f"draft {before.pair.draft.name} → {after.pair.draft.name}"]


def _named(run: RunTrace) -> str:
    base = PRESETS.get(run.label) or METHODS.get(run.method)
    if base is None or base.name != run.method or base.label != run.label:
        return run.label
    # What is empty by default is measured with the pair: long, and nobody's choice.
    own = {name: value for name, value in base.settings().items() if value != ""}
    changed = [f"{name} {_written(run.settings[name])}" for name in own if run.settings.get(name) != own[name]]
    return f"{run.label} ({', '.join(changed)})" if changed else run.label


def _written(value: Setting) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
