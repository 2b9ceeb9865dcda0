"""What two runs differ in, as lines of text."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from decoding.diff import OutputToken, RunDiff, TreeDifference, Value
from decoding.trace import IterationTrace

SHOWN_TREES, SHOWN_NODES, SHOWN_CHARACTERS = 8, 6, 60


def diff_lines(diff: RunDiff, first: str = "A", second: str = "B", every: bool = False) -> list[str]:
    """The whole comparison, `first` and `second` being what to call the runs."""
    lines = [f"A: {first} ({shown(diff.labels[0])})", f"B: {second} ({shown(diff.labels[1])})", ""]
    lines += [parting_words(diff), ""]
    lines += ["Asked and given", *(_indented(difference_words(diff)) or ["  the same in every respect"]), ""]
    lines += ["Trees", *_indented(tree_words(diff, every)), ""]
    return [*lines, "Totals", *_indented(_columns(total_rows(diff)))]


def parting_words(diff: RunDiff) -> str:
    """One sentence on whether and where the output differs."""
    part = diff.parting
    if part is None:
        return f"Both runs wrote the same {_count(diff.same_tokens, 'token')}."
    tokens = f"A has {_token(part.first)} and B has {_token(part.second)}"
    if not part.position:
        return f"The output differs from the first token on: {tokens}."
    return f"The output is the same for {_count(part.position, 'token')}, then {tokens}."


def difference_words(diff: RunDiff) -> list[str]:
    """A line per thing that was asked or given differently; what only one method has is on one line each."""
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
    """Lines on the iterations that began at the same text and drafted or decided differently."""
    if not diff.compared:
        return ["no two recorded trees stand behind the same text"]
    if not diff.trees:
        return [f"{_count(diff.compared, 'iteration')} behind the same text: every tree and every verdict is the same"]
    lines = [f"{len(diff.trees)} of {_count(diff.compared, 'iteration')} behind the same text differ"]
    trees = diff.trees if every else diff.trees[:SHOWN_TREES]
    for tree in trees:
        lines += _tree_lines(tree, every)
    left = len(diff.trees) - len(trees)
    return [*lines, f"and {_count(left, 'more iteration')}"] if left else lines


def total_rows(diff: RunDiff) -> list[tuple[str, str, str]]:
    """Rows of words, A and B; those that neither run has are left out."""
    rows = [("", "A", "B")]
    for total in diff.totals:
        if total.first is not None or total.second is not None:
            rows.append((total.words, _number(total.first, total.unit), _number(total.second, total.unit)))
    return rows


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
    same = "commits the same tokens" if tree.committed else "commits other tokens"
    first, second = tree.first, tree.second
    places = f"iteration {first.index + 1} of A, {second.index + 1} of B"
    yield f"{places}, after {first.prefix_length:,} tokens: {same}"
    for name, iteration, nodes in (("A", first, tree.only_first), ("B", second, tree.only_second)):
        if nodes:
            listed = _listed(nodes, partial(_path_words, iteration), every)
            yield f"  {_count(len(nodes), 'node')} only in {name}: {listed}"
    if tree.verdicts:
        listed = _listed(tree.verdicts, partial(_verdicts, tree), every)
        yield f"  {_count(len(tree.verdicts), 'other verdict')}: {listed}"


def _listed(found: Sequence, words: Callable[..., str], every: bool) -> str:
    """Only what is shown is put into words: a tree from a file may have very many nodes."""
    kept = found if every else found[:SHOWN_NODES]
    more = len(found) - len(kept)
    return ", ".join(map(words, kept)) + (f" and {more} more" if more else "")


def _verdicts(tree: TreeDifference, nodes: tuple[int, int]) -> str:
    first, second = (each.nodes[node].verdict for each, node in zip((tree.first, tree.second), nodes, strict=True))
    return f"{_path_words(tree.first, nodes[0])} {_words(first)} | {_words(second)}"


def _path_words(iteration: IterationTrace, node: int) -> str:
    """The text from the root down to a node, the end of it where it is long."""
    text = "".join(iteration.nodes[place].text[-SHOWN_CHARACTERS:] for place in iteration.path(node)[1:])
    return repr(text if len(text) <= SHOWN_CHARACTERS else f"…{text[1 - SHOWN_CHARACTERS :]}")


def _token(token: OutputToken | None) -> str:
    if token is None:
        return "ended"
    return f"{token.text!r} (iteration {token.iteration + 1}, {token.provenance})"


def _words(verdict: str) -> str:
    return verdict.replace("_", " ")


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    words = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}" if unit != "s" else f"{value:,.3f}"
    return f"{words} {unit}" if unit in ("s", "%", "MiB") else words


def _count(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _columns(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [f"{a.ljust(widths[0])}  {b.rjust(widths[1])}  {c.rjust(widths[2])}" for a, b, c in rows]
