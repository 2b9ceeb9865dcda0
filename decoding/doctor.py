"""`python -m decoding.doctor --target T --draft D`: what lowers a pair's acceptance, with evidence and what to do.

Exit code 0: no fault was found; 1: a fault was found; 2: there are no prompts, or a setting is out of its range.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from decoding.common.errors import PromptError, command, require
from decoding.common.formats import plural
from decoding.common.prompts import EMBEDDED_KINDS, Prompt, in_turn, load_prompts, read_prompt
from decoding.models.presets import add_pair_arguments, add_sampling_arguments, pair_name, pair_settings, sampling_from

if TYPE_CHECKING:
    from decoding.analysis.pair_files import Finding

PROMPTS = 8  # of the samples, in turn by kind: enough to judge by, and read within seconds by a small pair


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    made = argparse.ArgumentParser(
        prog="python -m decoding.doctor", description="Say what lowers the acceptance of a draft/target pair."
    )
    made.add_argument("--prompts", type=Path, metavar="FILE", help="a UTF-8 text file, or a folder of .txt files")
    made.add_argument("--max-new-tokens", type=int, default=64, metavar="N", help="written after each prompt")
    add_sampling_arguments(made, "top_p", "seed")
    add_pair_arguments(made, "engine", "attention", "split")
    made.add_argument("--json", action="store_true", help="write everything as one JSON object")
    return made


def chosen_prompts(place: Path | None) -> list[Prompt]:
    """The prompts of a file or a folder, or samples of the kinds that the embedded pair was trained on, in turn.

    Raises `PromptError` where there are none.
    """
    if place is None:
        return in_turn(load_prompts(), EMBEDDED_KINDS)[:PROMPTS]
    if place.is_dir():
        return list(load_prompts(place))
    if not place.exists():
        raise PromptError(f"There is no {place}: give a text file or a folder of .txt files.")
    return [Prompt("file", place.stem, read_prompt(place, place, "choose another file"))]


def finding_lines(found: Sequence["Finding"]) -> list[str]:
    """Verdict, check and evidence of each, what to do below, and how many there are of each verdict."""
    lines, wide = [], max(len(each.verdict) for each in found)
    for each in found:
        lines.append(f"{each.verdict:{wide}}  {each.check}: {each.evidence}")
        if each.mend:
            lines.append(f"{'':{wide}}  -> {each.mend}")
    counts = Counter(each.verdict for each in found)
    faults = plural(counts["fault"], "fault")
    return [*lines, "", f"{faults}, {counts['sound']} sound, {counts['not checked']} not checked"]


@command
def main(arguments: list[str] | None = None) -> int:
    """Examine a pair and print what was found; the code is 0, 1 or 2 as the module says."""
    args = parser().parse_args(arguments)
    prompts = chosen_prompts(args.prompts)
    require(args.max_new_tokens > 0, f"--max-new-tokens must be 1 or more, not {args.max_new_tokens}.")
    os.environ["HF_HUB_OFFLINE"] = "1"  # before the Hub's client is imported, which reads it once
    from transformers.utils import logging

    from decoding.analysis.doctor import examine

    logging.set_verbosity_error()
    settings = pair_settings(args)
    found = examine(settings, prompts, sampling_from(args), args.max_new_tokens)
    if args.json:
        asked = {"pair": pair_name(settings), "prompts": [prompt.title for prompt in prompts]}
        asked |= {"temperature": args.temperature, "draft_temperature": args.draft_temperature}
        print(json.dumps({**asked, "findings": [asdict(each) for each in found]}, indent=2))
    else:
        print("\n".join([pair_name(settings), "", *finding_lines(found)]))
    return int(any(each.verdict == "fault" for each in found))


if __name__ == "__main__":
    sys.exit(main())
