"""Parameters of a family of tests of which some members always run and the others with `-m slow`."""

import pytest


def family(members, *always):
    """One parameter per member, marked slow unless named in `always`."""
    missing = set(always) - set(members)
    assert always and not missing, f"no members of the family: {missing}"
    return [pytest.param(member, marks=() if member in always else pytest.mark.slow) for member in members]
