"""Make the example of training data that Train shows: `python -m decoding.training.example`.

A root of a sample prompt with the tree that the embedded target grows below it, made as a training makes both. It is
stored beside the heads that come with the program, and hangs on the embedded pair alone.
"""

import argparse
import json
import sys
from typing import Any

from decoding.common.errors import command
from decoding.common.files import write_whole
from decoding.common.prompts import load_prompts
from decoding.heads.store import SHIPPED, USUAL_WIDTH
from decoding.models.pair import Pair, load_pair
from decoding.models.presets import PairSettings
from decoding.training.folder import EXAMPLE
from decoding.training.head_data import example_in, target_trees
from decoding.training.text import Texts, WindowPlan, windows_of

PROMPT = "stories/red_balloon"
PLAN = WindowPlan(windows=1, roots=40)  # shorter than the prompt: every token of the window is the prompt's own


def example_for(pair: Pair) -> dict[str, Any]:
    """`example_in` the window of the prompt."""
    (text,) = (prompt.text for prompt in load_prompts() if prompt.title == PROMPT)
    (window,) = windows_of(pair, Texts({"example": (text,)}, {}, prompts=True), PLAN, [0])
    trees = target_trees(pair.target, window[: PLAN.roots + 1], USUAL_WIDTH, PLAN.depth - 1)
    return example_in(pair, window, PLAN.roots, trees)


@command
def main(arguments: list[str] | None = None) -> int:
    """Make and store it."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(arguments)
    write_whole(SHIPPED / EXAMPLE, json.dumps(example_for(load_pair(PairSettings()))).encode() + b"\n")
    print(f"{SHIPPED / EXAMPLE} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
