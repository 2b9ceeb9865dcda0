"""`python -m decoding.recycle --prompts FOLDER --name NAME`: make a matrix for token recycling and keep it.

The prompts are decoded greedily by token recycling itself, each beginning with what was learned from those before it.
Runs begin with the matrix by `--method token_recycling:matrix=NAME`. Progress goes to stderr. Exit code 0: kept; 1:
stopped or out of memory, nothing kept; 2: what was asked for cannot be done.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from decoding.common import matrix_store
from decoding.common.errors import PromptError, command
from decoding.common.files import local_stamp
from decoding.common.prompts import Prompt, load_prompts
from decoding.jobs.process import OFTEN_S, ProgressLine
from decoding.models.presets import add_pair_arguments, pair_settings
from decoding.record import Report

if TYPE_CHECKING:
    from decoding.common.matrix_store import Matrix
    from decoding.models.pair import Pair


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    made = argparse.ArgumentParser(prog="python -m decoding.recycle", description="Make a matrix for token recycling.")
    made.add_argument("--prompts", type=Path, required=True, metavar="FOLDER", help="a folder of .txt files")
    made.add_argument("--name", required=True, help="what the matrix is called; one that is there stays as it is")
    made.add_argument("--from", dest="begun", default="", metavar="NAME", help="a kept matrix to go on from")
    made.add_argument("--max-new-tokens", type=int, default=128, metavar="N", help="written after each prompt")
    add_pair_arguments(made)
    return made


def recycled(
    pair: "Pair",
    prompts: Sequence[Prompt],
    max_new_tokens: int,
    matrix: "Matrix | None" = None,
    report: Report = lambda words: None,
) -> "tuple[Matrix, int]":
    """The matrix after these prompts, one after the other, and the number of tokens decoded.

    Args:
        matrix: to begin with; empty by default.
        report: hears how far it is.

    Raises `PromptError` before anything is decoded where a prompt does not fit the context.
    """
    from decoding.drafters.token_recycling import TokenRecyclingDrafter
    from decoding.methods.methods import METHODS
    from decoding.session.session import DecodeSession, Limits, check_prompt

    @dataclass(frozen=True)
    class Continued(TokenRecyclingDrafter):
        """Begins with a matrix that is still being made."""

        known: "Matrix" = field(default_factory=dict, repr=False, compare=False)

        def start(self, prompt_ids):
            return self.known

    texts, known, tokens = [], matrix or {}, 0
    for prompt in prompts:
        try:
            texts.append(check_prompt(pair, pair.vocabulary.encode_prompt(prompt.text), max_new_tokens))
        except PromptError as error:
            raise PromptError(f"{prompt.title}: {error}") from None
    for place, text in enumerate(texts):
        method = replace(METHODS["token_recycling"], drafter=Continued(known=known))
        session = DecodeSession(pair, method, text, limits=Limits(max_new_tokens, record="none"))
        for iteration in session:
            now, passes = tokens + session.new_tokens, iteration.index + 1
            report(f"prompt {place + 1} of {len(texts)}, {now:,} tokens, {passes} passes over this prompt")
        known, tokens = session.standing(passes).state, now
    return known, tokens


def main(arguments: list[str] | None = None) -> int:
    """Make and keep a matrix; every error is one sentence on stderr."""
    return command(_recycle, "no matrix was kept")(parser().parse_args(arguments))


def _recycle(args: argparse.Namespace) -> int:
    import transformers

    from decoding.models.pair import load_pair, pair_identity

    transformers.logging.set_verbosity_error()
    folder, prompts = matrix_store.check_new(args.name), load_prompts(args.prompts)
    first = matrix_store.find_matrix(args.begun) if args.begun else None
    report = ProgressLine(OFTEN_S).show
    report("loading the pair")
    pair = load_pair(pair_settings(args))
    identity, known = pair_identity(pair), None
    counts = {"prompts": len(prompts), "tokens": 0}
    if first is not None:
        matrix_store.require_fit(first, identity)
        known = matrix_store.load_matrix(first.full_name)
        counts = {"prompts": first.counts["prompts"] + len(prompts), "tokens": first.counts["tokens"]}
    matrix, tokens = recycled(pair, prompts, args.max_new_tokens, known, report)
    counts["tokens"] += tokens
    begun = first.full_name if first else ""
    matrix_store.save_matrix(folder, matrix, identity, local_stamp(), begun, counts)
    report("")
    kept = matrix_store.find_matrix(args.name)
    print(f"{kept.full_name}: {len(matrix):,} rows from {counts['tokens']:,} tokens of {counts['prompts']:,} prompts")
    print(f"Begin runs with it: --method token_recycling:matrix={kept.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
