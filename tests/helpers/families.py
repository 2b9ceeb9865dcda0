"""Families of tests: which members always run and which with `-m slow`, and settings that spare methods measuring."""

import pytest

# What methods would measure on the pair first, by method: given, a test of something else is spared a second or two.
MEASURED = {
    "sequoia": {"acceptance": "0.5,0.2,0.1"},
    "hardware_aware": {"verify_ms": "1:3 64:9", "level_ms": "1:0.5 64:1", "odds": "2 1.3"},
}


def family(members, *always):
    """One parameter per member, marked slow unless named in `always`."""
    missing = set(always) - set(members)
    assert always and not missing, f"no members of the family: {missing}"
    return [pytest.param(member, marks=() if member in always else pytest.mark.slow) for member in members]
