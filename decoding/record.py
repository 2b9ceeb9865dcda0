"""`python -m decoding.record --prompt TEXT --method NAME[:setting=value,...] --out run.dscope`: decode and save a run.

The file opens in the app on any machine, also without torch and without a GPU. Progress goes to stderr. Exit code 0:
written; 1: stopped or out of memory, nothing written; 2: what was asked for cannot be done.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from decoding.common.errors import PromptError, SettingsError, TraceFileError, command, require
from decoding.common.formats import byte_size
from decoding.common.prompts import KINDS, load_prompts, read_prompt
from decoding.jobs.process import OFTEN_S, ProgressLine
from decoding.models.presets import add_pair_arguments, add_sampling_arguments, pair_settings, sampling_from
from decoding.trace.records import RunTrace
from decoding.trace.run_file import MAX_ROW_BYTES, save_run

if TYPE_CHECKING:
    from decoding.methods.method import Method
    from decoding.models.pair import Pair
    from decoding.sampling.sampling import Sampling
    from decoding.session.session import Limits

Report = Callable[[str], None]


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    made = argparse.ArgumentParser(prog="python -m decoding.record", description="Decode a prompt and save the run.")
    prompt = made.add_mutually_exclusive_group(required=True)
    prompt.add_argument("--prompt", metavar="TEXT", help="a text, or kind/name of a sample prompt")
    prompt.add_argument("--prompt-file", type=Path, metavar="FILE", help="a UTF-8 text file")
    made.add_argument("--method", default="dynatree", metavar="NAME[@ENGINE][:setting=value,...]")
    made.add_argument("--out", type=Path, required=True, metavar="FILE", help="file to write, such as run.dscope")
    made.add_argument("--force", action="store_true", help="overwrite an existing file")
    made.add_argument("--max-new-tokens", type=int, default=128, metavar="N")
    made.add_argument("--ignore-end-of-text", action="store_true", help="continue past stop tokens")
    made.add_argument(
        "--record", choices=("full", "summary"), default="full", help="summary: counts and times, no trees"
    )
    made.add_argument("--rows", choices=("top", "full"), default="top", help="full: raw logits, to replay verifiers")
    made.add_argument(
        "--warm-up", type=int, default=8, metavar="N", help="tokens decoded first, so that times are representative"
    )
    add_pair_arguments(made)
    add_sampling_arguments(made)
    return made


def prompt_text(args: argparse.Namespace) -> str:
    """The prompt that was asked for.

    Raises:
        PromptError: a file that is no short UTF-8 text, a sample that does not exist, or no text at all.
    """
    if args.prompt_file is not None:
        return read_prompt(args.prompt_file, args.prompt_file, "choose another file")
    samples = {prompt.title: prompt.text for prompt in load_prompts()}
    if args.prompt not in samples and args.prompt.partition("/")[0] in KINDS and " " not in args.prompt:
        raise PromptError(f"There is no sample prompt {args.prompt!r}: choose one such as {next(iter(samples))}.")
    text = samples.get(args.prompt, args.prompt)
    if not text.strip():
        raise PromptError("The prompt is empty: give some text or the name of a sample prompt.")
    return text


def chosen_method(text: str, sampling: "Sampling") -> tuple["Method", str | None]:
    """Method and engine of `NAME[@ENGINE][:setting=value,...]`; at a temperature NSS takes the place of greedy.

    Raises:
        SettingsError: an unknown name, setting or value, or a verifier, asked for by name, that would bias the output.
    """
    from decoding.compare.contestants import parse_contestant
    from decoding.methods.method import fitted

    contestant = parse_contestant(text)
    if contestant.method is None:
        raise SettingsError(f"{text} drafts no trees to record: choose a method such as dynatree.")
    method = contestant.method
    if "verifier=" not in text:
        method = fitted(method, sampling)
    method.check(sampling)
    return method, contestant.engine


def check_place(path: Path, force: bool) -> None:
    """Raise `TraceFileError` where the run could not be written, before time is spent on it."""
    if not path.parent.is_dir():
        raise TraceFileError(f"There is no folder {path.parent}: choose another folder or create it first.")
    if path.is_dir():
        raise TraceFileError(f"{path} is a folder: name a file in it.")
    if path.exists() and not force:
        raise TraceFileError(f"{path} already exists: choose another name or overwrite it with --force.")


def record(
    pair: "Pair",
    method: "Method",
    prompt_ids: list[int],
    sampling: "Sampling",
    limits: "Limits",
    report: Report = lambda words: None,
) -> RunTrace:
    """Decode to the end and return the run; `report` hears how far it is.

    Raises `TraceFileError` where the raw logits outgrow what a file holds; decoding ends there.
    """
    from decoding.session.session import DecodeSession

    session = DecodeSession(pair, method, prompt_ids, sampling, limits)
    row_bytes = 0
    for iteration in session:
        row_bytes += iteration.logits_bytes
        if row_bytes > MAX_ROW_BYTES:
            raise TraceFileError(
                f"The full logits of {iteration.index + 1} iterations take {row_bytes // 2**20} MiB and a file holds "
                f"{MAX_ROW_BYTES // 2**20} MiB of them: ask for fewer tokens or for --rows top."
            )
        report(f"{session.new_tokens} of at most {limits.max_new_tokens} tokens, {iteration.index + 1} iterations")
    return session.trace()


def main(arguments: list[str] | None = None) -> int:
    """Decode and save; every error is one sentence on stderr."""
    return command(_record, "nothing was written")(parser().parse_args(arguments))


def _record(args: argparse.Namespace) -> int:
    text = prompt_text(args)
    check_place(args.out, args.force)
    require(
        args.record == "full" or args.rows == "top",
        "--rows full keeps the logits of each node, and --record summary has no nodes: leave one of the two away.",
    )
    require(args.warm_up >= 0, f"--warm-up must be 0 or more, not {args.warm_up}.")
    import transformers

    from decoding.costs.measuring import settle_doubts
    from decoding.models.pair import load_pair
    from decoding.session.session import Limits, unrecorded

    transformers.logging.set_verbosity_error()
    sampling = sampling_from(args)
    method, engine = chosen_method(args.method, sampling)
    limits = Limits(args.max_new_tokens, args.ignore_end_of_text, args.record, args.rows)
    report = ProgressLine(OFTEN_S).show
    report("loading the pair")
    pair = load_pair(pair_settings(args, engine=engine or args.engine))
    prompt_ids = pair.vocabulary.encode_prompt(text)
    if args.warm_up:
        report("warming up")
        record(pair, method, prompt_ids, sampling, Limits(min(args.warm_up, args.max_new_tokens), True, "none"))
    run = record(pair, method, prompt_ids, sampling, limits, report)
    report("writing")
    save_run(run, args.out, overwrite=args.force)
    settle_doubts(unrecorded)
    report("")
    size = byte_size(args.out.stat().st_size)
    said = "".join(text for each in run.iterations for text in each.committed_texts)
    print("".join(char if char.isprintable() or char == "\n" else "?" for char in said), end="\n\n")
    print(f"{args.out}: {run.totals.new_tokens} tokens in {len(run.iterations)} iterations, {run.totals.wall_s:.2f} s "
          f"on {run.pair.target.device}, {size}")  # fmt: skip
    for model in (run.pair.target, run.pair.draft):
        print(f"{model.name}: engine {model.engine} ({model.engine_reason})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
