"""`python -m decoding.diff A B`: where two saved runs part. Needs no torch.

Exit code 0: same output; 1: the output differs; 2: a file cannot be read.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from decoding.common.errors import command
from decoding.common.formats import plural
from decoding.trace.metrics import shared_tokens
from decoding.trace.records import IterationTrace, RunTrace, node_paths
from decoding.trace.run_file import load_run

Value = int | float | bool | str | None


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """One thing that was asked for or given in another way: `group` is `prompt`, `pair`, `method`, `settings`, ..."""

    group: str
    name: str
    first: Value
    second: Value


@dataclass(frozen=True, slots=True)
class OutputToken:
    """A token of the output: what it is, which iteration committed it, and as what (`drafted`, `bonus`, ...)."""

    token_id: int
    text: str
    iteration: int
    provenance: str


@dataclass(frozen=True, slots=True)
class Parting:
    """The first position of the output, 0-based, where two runs differ; None where a run has no token there."""

    position: int
    first: OutputToken | None
    second: OutputToken | None


@dataclass(frozen=True, slots=True)
class TreeDifference:
    """Two iterations that began at the same text and did not do the same.

    Attributes:
        first, second: the iterations.
        only_first, only_second: ids of nodes of one tree that the other lacks.
        verdicts: ids of nodes of both trees with another verdict.
    """

    first: IterationTrace
    second: IterationTrace
    only_first: tuple[int, ...]
    only_second: tuple[int, ...]
    verdicts: tuple[tuple[int, int], ...]

    @property
    def committed(self) -> bool:
        """Whether they committed the same tokens."""
        return self.first.committed_ids == self.second.committed_ids

    @property
    def empty(self) -> bool:
        """Whether both did the same."""
        return self.committed and not (self.only_first or self.only_second or self.verdicts)


@dataclass(frozen=True, slots=True)
class Total:
    """One number of both whole runs, None where a run has none; `unit` is empty for counts."""

    words: str
    first: float | None
    second: float | None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class RunDiff:
    """How two runs differ.

    Attributes:
        labels: what the runs are called.
        differences: what was asked or given differently, prompt first, hardware last.
        parting: where the output differs, None where it is the same.
        same_tokens: output tokens before that.
        compared: iterations of both that began at the same text with their trees recorded.
        trees: those of them that differ, in order.
        totals: numbers of the whole runs beside each other.
    """

    labels: tuple[str, str]
    differences: tuple[SettingDifference, ...]
    parting: Parting | None
    same_tokens: int
    compared: int
    trees: tuple[TreeDifference, ...]
    totals: tuple[Total, ...]


SHOWN_TREES, SHOWN_NODES, SHOWN_CHARACTERS = 8, 6, 60


def compare_runs(first: RunTrace, second: RunTrace) -> RunDiff:
    """Everything in which two runs differ."""
    ids = first.output_ids, second.output_ids
    same = shared_tokens(*ids)
    parting = None if ids[0] == ids[1] else Parting(same, _token_at(first, same), _token_at(second, same))
    others = {each.prefix_length: each for each in second.iterations} if first.prompt_ids == second.prompt_ids else {}
    trees = []
    for iteration in first.iterations:
        other, behind = others.get(iteration.prefix_length), iteration.prefix_length - len(first.prompt_ids)
        if other is not None and behind <= same and iteration.nodes and other.nodes:
            trees.append(compare_iterations(iteration, other))
    return RunDiff(
        labels=(first.label, second.label),
        differences=tuple(_differences(first, second)),
        parting=parting,
        same_tokens=same,
        compared=len(trees),
        trees=tuple(tree for tree in trees if not tree.empty),
        totals=tuple(
            Total(words, mine, other, unit)
            for (words, unit, mine), (_, _, other) in zip(_numbers(first), _numbers(second), strict=True)
        ),
    )


def compare_iterations(first: IterationTrace, second: IterationTrace) -> TreeDifference:
    """Two recorded trees on the same text, matched node by node by the tokens from the root down."""
    mine, other = ({path: node for node, path in enumerate(node_paths(each))} for each in (first, second))
    both = [(mine[path], other[path]) for path in mine if path in other]
    return TreeDifference(
        first,
        second,
        only_first=tuple(node for path, node in mine.items() if path not in other),
        only_second=tuple(node for path, node in other.items() if path not in mine),
        verdicts=tuple((a, b) for a, b in both if first.nodes[a].verdict != second.nodes[b].verdict),
    )


def _token_at(run: RunTrace, position: int) -> OutputToken | None:
    for iteration in run.iterations:
        if position < len(iteration.committed_ids):
            drafted = position < len(iteration.accepted)
            provenance = "drafted" if drafted else iteration.final_kind
            text = iteration.committed_texts[position]
            return OutputToken(iteration.committed_ids[position], text, iteration.index, provenance)
        position -= len(iteration.committed_ids)
    return None


def _differences(first: RunTrace, second: RunTrace) -> Iterator[SettingDifference]:
    if first.prompt_ids != second.prompt_ids:
        yield SettingDifference("prompt", "text", "".join(first.prompt_texts), "".join(second.prompt_texts))
    for role in ("target", "draft"):
        yield from _changed(f"{role} model", asdict(getattr(first.pair, role)), asdict(getattr(second.pair, role)))
    yield from _changed("method", {"name": first.method}, {"name": second.method})
    yield from _changed("settings", first.settings, second.settings)
    yield from _changed("sampling", asdict(first.sampling), asdict(second.sampling))
    yield from _changed("length", {"max_new_tokens": first.max_new_tokens}, {"max_new_tokens": second.max_new_tokens})
    yield from _changed("hardware", first.hardware, second.hardware)


def _changed(group: str, first: Mapping[str, Value], second: Mapping[str, Value]) -> Iterator[SettingDifference]:
    for name in dict.fromkeys((*first, *second)):
        if first.get(name) != second.get(name):
            yield SettingDifference(group, name, first.get(name), second.get(name))


def _numbers(run: RunTrace) -> Iterator[tuple[str, str, float | None]]:
    """Words, unit and value of what a run took, counted and measured."""
    its, totals = run.iterations, run.totals
    tokens, accepted = len(run.output_ids), sum(len(each.accepted) for each in its)
    drafted, verified = sum(each.drafted for each in its), sum(each.verified for each in its)
    yield "new tokens", "", tokens
    yield "iterations", "", len(its)
    yield "target passes", "", sum(each.target_passes for each in its)
    yield "draft forwards", "", sum(each.draft_forwards for each in its)
    yield "tokens per verification pass", "", tokens / len(its) if its else None
    yield "accepted of drafted", "%", 100 * accepted / drafted if drafted else None
    yield "accepted of verified", "%", 100 * accepted / verified if verified else None
    yield "iterations in a loop", "", sum(each.in_loop for each in its)
    timed = run.timed and totals.wall_s > 0  # no time of a replayed iteration was measured
    yield "wall time, measured", "s", totals.wall_s if timed else None
    yield "time to first token, measured", "s", totals.ttft_s if timed else None
    yield "tokens per second, measured", "1/s", totals.new_tokens / totals.wall_s if timed else None
    yield "peak memory", "MiB", None if totals.peak_memory_bytes is None else totals.peak_memory_bytes / 2**20


def diff_lines(diff: RunDiff, first: str = "A", second: str = "B", every: bool = False) -> list[str]:
    """The whole comparison, `first` and `second` being what to call the runs."""
    lines = [f"A: {first} ({shown(diff.labels[0])})", f"B: {second} ({shown(diff.labels[1])})", ""]
    lines += [parting_words(diff), ""]
    lines += ["Settings", *(_indented(difference_words(diff)) or ["  identical"]), ""]
    lines += ["Trees", *_indented(tree_words(diff, every)), ""]
    rows = [("", "A", "B")]
    for total in diff.totals:
        if total.first is not None or total.second is not None:
            rows.append((total.words, _number(total.first, total.unit), _number(total.second, total.unit)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    columns = [f"{a.ljust(widths[0])}  {b.rjust(widths[1])}  {c.rjust(widths[2])}" for a, b, c in rows]
    return [*lines, "Totals", *_indented(columns)]


def parting_words(diff: RunDiff) -> str:
    """One sentence on whether and where the output differs."""
    part = diff.parting
    if part is None:
        return f"Both runs wrote the same {plural(diff.same_tokens, 'token')}."
    tokens = f"A has {_token(part.first)} and B has {_token(part.second)}"
    if not part.position:
        return f"The outputs differ at the first token: {tokens}."
    return f"The outputs agree for {plural(part.position, 'token')}, then {tokens}."


def difference_words(diff: RunDiff) -> list[str]:
    """A line per setting that differs; settings of only one method share a line."""
    own = {"A": [each for each in diff.differences if each.group == "settings" and each.second is None],
           "B": [each for each in diff.differences if each.group == "settings" and each.first is None]}  # fmt: skip
    both = [each for each in diff.differences if each not in own["A"] and each not in own["B"]]
    lines = [f"{each.group}, {shown(each.name)}: {shown(each.first)} | {shown(each.second)}" for each in both]
    for name, those in own.items():
        values = [f"{shown(each.name)} {shown(each.first if each.second is None else each.second)}" for each in those]
        if those:
            lines.append(f"settings only in {name}: {', '.join(values)}")
    return lines


def tree_words(diff: RunDiff, every: bool = False) -> list[str]:
    """Lines on the iterations that began at the same text but drafted or verified differently."""
    if not diff.compared:
        return ["no two recorded trees follow the same text"]
    if not diff.trees:
        return [f"{plural(diff.compared, 'iteration')} after the same text: all trees and verdicts are identical"]
    lines = [f"{len(diff.trees)} of {plural(diff.compared, 'iteration')} after the same text differ"]
    trees = diff.trees if every else diff.trees[:SHOWN_TREES]
    for tree in trees:
        lines += _tree_lines(tree, every)
    left = len(diff.trees) - len(trees)
    return [*lines, f"and {plural(left, 'more iteration')}"] if left else lines


def shown(value: Value) -> str:
    """A value or a text on one line, cut where it is long."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    words = f"{value:g}" if isinstance(value, float) else str(value)
    words = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in words)
    return words if len(words) <= SHOWN_CHARACTERS else f"{words[: SHOWN_CHARACTERS - 1]}…"


def _tree_lines(tree: TreeDifference, every: bool) -> Iterator[str]:
    same = "commits the same tokens" if tree.committed else "commits different tokens"
    first, second = tree.first, tree.second
    places = f"iteration {first.index + 1} of A, {second.index + 1} of B"
    yield f"{places}, after {first.prefix_length:,} tokens: {same}"
    for name, iteration, nodes in (("A", first, tree.only_first), ("B", second, tree.only_second)):
        if nodes:
            listed = _listed(nodes, partial(_path_words, iteration), every)
            yield f"  {plural(len(nodes), 'node')} only in {name}: {listed}"
    if tree.verdicts:

        def words(nodes: tuple[int, int]) -> str:
            verdicts = first.nodes[nodes[0]].verdict, second.nodes[nodes[1]].verdict
            return f"{_path_words(first, nodes[0])} {' | '.join(verdicts).replace('_', ' ')}"

        listed = _listed(tree.verdicts, words, every)
        yield f"  {plural(len(tree.verdicts), 'other verdict')}: {listed}"


def _listed(found: Sequence, words: Callable[..., str], every: bool) -> str:
    """Only what is shown is put into words: a tree from a file may have very many nodes."""
    kept = found if every else found[:SHOWN_NODES]
    more = len(found) - len(kept)
    return ", ".join(map(words, kept)) + (f" and {more} more" if more else "")


def _path_words(iteration: IterationTrace, node: int) -> str:
    """The text from the root down to a node, the end of it where it is long."""
    text = "".join(iteration.nodes[place].text[-SHOWN_CHARACTERS:] for place in iteration.path(node)[1:])
    return repr(text if len(text) <= SHOWN_CHARACTERS else f"…{text[1 - SHOWN_CHARACTERS :]}")


def _token(token: OutputToken | None) -> str:
    if token is None:
        return "ended"
    return f"{token.text!r} (iteration {token.iteration + 1}, {token.provenance})"


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    words = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}" if unit != "s" else f"{value:,.3f}"
    return f"{words} {unit}" if unit in ("s", "%", "MiB") else words


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


@command
def main(arguments: list[str] | None = None) -> int:
    """Compare two files and print what differs; the code is 0, 1 or 2 as the module says."""
    parser = argparse.ArgumentParser(prog="python -m decoding.diff", description="Show where two saved runs diverge.")
    parser.add_argument("first", type=Path, metavar="A", help="a run saved with Draftscope")
    parser.add_argument("second", type=Path, metavar="B", help="a second run")
    parser.add_argument("--all", action="store_true", help="list every node that differs, not only the first few")
    args = parser.parse_args(arguments)
    diff = compare_runs(load_run(args.first), load_run(args.second))
    print("\n".join(diff_lines(diff, str(args.first), str(args.second), every=args.all)))
    return 0 if diff.parting is None else 1


if __name__ == "__main__":
    sys.exit(main())
