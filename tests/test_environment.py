"""What is set for torch before it is loaded: to spin briefly and to keep few primitives, unless a person wants more."""

import os
import subprocess
import sys

import pytest

from decoding import PRIMITIVES, SPIN_COUNT, keep_few_primitives, spin_briefly
from tests.helpers.families import family


def test_a_choice_of_ones_own_stays():
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        environment = {name: "mine"}
        spin_briefly(environment)
        assert environment == {name: "mine"}
    environment = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "mine"}
    keep_few_primitives(environment)
    assert environment == {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "mine"}


@pytest.mark.parametrize(
    "module", family(["decoding.trace.records", "pages.ui.common.worker"], "decoding.trace.records")
)
def test_it_is_set_before_torch_is_loaded(module):
    unset = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "ONEDNN_"))}
    asked = f"import {module}, os, sys; print('torch' in sys.modules)"
    asked += "; print(*map(os.environ.get, ('GOMP_SPINCOUNT', 'ONEDNN_PRIMITIVE_CACHE_CAPACITY')))"
    reported = subprocess.run([sys.executable, "-c", asked], env=unset, capture_output=True, text=True, check=True)
    assert reported.stdout.split() == ["False", SPIN_COUNT, PRIMITIVES]
