"""Tree speculative decoding, one iteration at a time.

    from decoding import METHODS, DecodeSession, PairSettings, Sampling, load_pair, load_run, save_run

Importing this package loads neither torch nor transformers, so that a recorded trace opens without them: a name is
loaded when it is first asked for, and what computes says in one sentence if torch is not there.
"""

import os
from collections.abc import MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from decoding.common.errors import needing_torch

if TYPE_CHECKING:
    from decoding.methods.methods import METHODS, method_label
    from decoding.models.pair import load_pair
    from decoding.models.presets import PairSettings
    from decoding.sampling.sampling import Sampling
    from decoding.session.session import DecodeSession
    from decoding.trace.run_file import load_run, save_run

__all__ = ["METHODS", "DecodeSession", "PairSettings", "Sampling", "load_pair", "load_run", "method_label", "save_run"]

HOMES = {
    "METHODS": "decoding.methods.methods",
    "DecodeSession": "decoding.session.session",
    "PairSettings": "decoding.models.presets",
    "Sampling": "decoding.sampling.sampling",
    "load_pair": "decoding.models.pair",
    "load_run": "decoding.trace.run_file",
    "method_label": "decoding.methods.methods",
    "save_run": "decoding.trace.run_file",
}

SPIN_COUNT = "3000"  # less costs a process that is alone a quarter of its speed, more one of two that share the cores
PRIMITIVES = "128"


def spin_briefly(environment: MutableMapping[str, str]) -> None:
    """Have the threads of torch's parallel loops wait awake only for a moment; call it before torch is loaded.

    By default libgomp's threads spin for milliseconds between two loops. That takes the processor from whatever else
    runs, which the loop then waits for: beside other busy processes a text takes tens of times as long. With too short
    a wait they sleep in the middle of a pass. What a person has chosen stays.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & environment.keys():
        environment["GOMP_SPINCOUNT"] = SPIN_COUNT


def keep_few_primitives(environment: MutableMapping[str, str]) -> None:
    """Have oneDNN keep the programs of fewer shapes; call it before torch is loaded.

    It writes one per matrix and number of rows, and trees have any number: by default it keeps 1,024 of them, in
    hundreds of megabytes that a server with many visitors never gets back. What a person has chosen stays.
    """
    environment.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", PRIMITIVES)


spin_briefly(os.environ)
keep_few_primitives(os.environ)


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needing_torch():
        return getattr(import_module(HOMES[name]), name)
