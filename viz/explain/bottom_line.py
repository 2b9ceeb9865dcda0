"""The bottom line in words: what to decode with, by how much it is faster, how sure that is, what would decide it."""

from collections.abc import Mapping, Sequence

from decoding.analysis.bottom_line import FEWEST, MOST, BottomLine, DraftModelNeed, Interval, Option, between
from decoding.analysis.slowdown import DRAFT, REBUILD, REST, TOKENS, VERIFY, Slowdown, Stretch
from decoding.common.formats import duration, listed, plural
from decoding.trace.records import IterationTrace, RunTrace
from viz.explain.expansion import why_absent, why_pruned
from viz.explain.known import Known
from viz.tokens import quote

SHOWN = 2  # rivals that are named
NOISY = 2.0  # an interval whose ends lie further apart tells of the machine rather than of the methods
CAUSES: dict[str, str] = {
    DRAFT: "drafting took {mine} an iteration instead of {other}",
    VERIFY: "the target's pass took {mine} instead of {other}",
    REBUILD: "a second target pass took {mine} instead of {other}",
    REST: "mask, verdicts and cache took {mine} an iteration instead of {other}",
    TOKENS: "an iteration committed {mine} tokens on average instead of {other}",
}


def bottom_line_words(line: BottomLine | None, where: str = "for this text on this machine") -> str:
    """One or two sentences to act on, and whether a draft model is needed where both kinds of drafting took part.

    Args:
        where: which texts and which machine the figures hold for.
    """
    if line is None:
        return "No method that drafts was measured, so nothing can be said on speculating: add one."
    said = [_line_words(line, where)]
    if line.verdict == "speculate" and line.best.batches:
        said.append(batch_words(line.best.batches))
    if line.draft_model is not None:
        said.append(f"Do you need a draft model? {need_words(line.draft_model)}")
    return " ".join(said)


def settings_words(line: BottomLine | None) -> str:
    """All settings of the best method, where it is one to decode with."""
    if line is None or line.verdict == "plain" or not line.best.settings:
        return ""
    return f"Settings of {line.best.label}: {line.best.settings}. "


def batch_words(gains: Mapping[int, float]) -> str:
    """How many sequences may be decoded at once until a method stops paying, by their modelled speed-ups."""
    sizes = sorted(gains)
    losing = next((place for place, size in enumerate(sizes) if gains[size] <= 1), None)
    source = "Modelled from passes measured here over batches, it"
    if losing is None:
        return f"{source} pays at every batch size up to {sizes[-1]} ({gains[sizes[-1]]:.2f}× plain decoding there)."
    over = f"{gains[sizes[losing]]:.2f}× plain decoding at {sizes[losing]}"
    if not losing:
        return f"{source} pays at no batch size ({over})."
    return f"{source} pays up to a batch size of {sizes[losing - 1]} ({over})."


def need_words(need: DraftModelNeed) -> str:
    """Whether a draft model is needed, with the ratio that says so."""
    best, over = need.best.label, f"{figure_words(need.ratio)} the speed of {need.other.label}"
    if need.verdict == "no":
        return f"No: without one, {best} has {over}."
    if need.verdict == "yes":
        return f"Yes: {best} has {over}, the fastest without one."
    said = f"Not decided: {best} has {over}"
    if not need.ratio.decides:
        return f"{said}; at least {FEWEST} {need.ratio.per}s would give an interval."
    return f"{said}; more {need.ratio.per}s may decide it."


def _line_words(line: BottomLine, where: str) -> str:
    best, figure = line.best, line.best.figure
    if not line.plain:
        return _without_plain(line, where)
    over = f"{figure_words(figure)} the speed of {line.plain}"
    if line.verdict == "plain":
        said = f"Do not speculate {where}: the best, {best.label}, has {over}."
        cause = f" Mostly because {cause_words(best.slowdown)}." if best.slowdown else ""
        return f"{said}{cause}{_pays_words(best)}"
    noisy = figure.decides and _noisy(line)
    if noisy and line.verdict == "open":
        return f"Not decided {where}. {noisy} {best.label} had {over}."
    if line.verdict == "open":
        if not figure.decides:
            said = (
                f"No verdict from {_counted(figure)}: {best.label} had {figure.value:.2f}× the speed of {line.plain}."
            )
            return f"{said} {_decides_words(line)}"
        said = f"Not decided {where}: {best.label} has {over}, which may be no gain."
        return f"{said} {_decides_words(line)}{_pays_words(best)}"
    if noisy and figure.high > NOISY * figure.low:
        said = f"Speculating was faster {where}, by how much{' and with what' if line.rivals else ''} is not decided"
        return f"{said}: {best.label} had {over}.{_unsure(line)} {noisy}"
    if line.rivals:
        said = (
            f"Speculate {where}; which method is best is not decided: {best.label} has {over}; {_rivals(line)} may be "
            f"just as fast{_beside(line)}.{_unsure(line)}"
        )
        return f"{said} {_decides_words(line)}{_pays_words(best)}"
    return f"Use {best.label} {where}: {over}.{_pays_words(best)}"


def figure_words(figure: Interval) -> str:
    """A ratio with its interval, or on how little it rests: `2.58× (95% interval 2.41 to 2.70, 5 repeats)`."""
    value = f"{figure.value:.2f}×"
    if not figure.decides:
        return f"{value} ({_counted(figure)})"
    return f"{value} (95% interval {figure.low:.2f} to {figure.high:.2f}, {_counted(figure)})"


def cause_words(lost: Slowdown) -> str:
    """What made one run slower than another, the largest factor: both measured values of it."""
    reason = lost.reason
    if reason == TOKENS:
        mine, other = f"{lost.mine.tokens:.1f}", f"{lost.other.tokens:.1f}"
    else:
        mine, other = (duration(each.seconds[reason]) for each in (lost.mine, lost.other))
    return CAUSES[reason].format(mine=mine, other=other)


def stretch_words(
    stretch: Stretch, runs: tuple[RunTrace, RunTrace], names: tuple[str, str], text: str, ended: str = ""
) -> list[str]:
    """What made the first, slower run lose on the same tokens, and what both spent, in two or three paragraphs.

    Args:
        runs, names: those of the slower one and of the faster one.
        ended: what ended the path of the slower one's first iteration, where its tree is known: `ended_words`.
    """
    count, found = stretch.end - stretch.start, []
    sides = zip(names, runs, (stretch.mine, stretch.other), (stretch.lost.mine, stretch.lost.other), strict=True)
    for name, run, places, means in sides:
        steps = [run.iterations[place] for place in places]
        nodes, forwards = (sum(getattr(step, part) for step in steps) for part in ("drafted", "draft_forwards"))
        found.append(
            f"{name} took {duration(means.token_s * count)}: {plural(len(steps), 'iteration')}, "
            f"{plural(forwards, 'draft forward')}, {plural(nodes, 'node')}"
        )
    cause = cause_words(stretch.lost)
    if stretch.lost.reason == TOKENS:
        both = list(zip(runs, (stretch.mine, stretch.other), strict=True))
        deepest = [max(run.iterations[place].tree_depth for place in places) for run, places in both]
        why = f"its deepest verified path had {_depths(*both[0])}, the other's {_depths(*both[1])}"
        if deepest[0] >= deepest[1]:
            why = "it drafted at least as deep, but fewer of its tokens were accepted"
        cause = f"{cause}: {why}"
    said = f"{quote(text)}, {plural(count, 'token')}. {names[0]} lost because {cause}."
    # The other's path went on where that of the first iteration ended.
    parts = [said, ended if len(stretch.mine) > 1 else "", f"{'; '.join(found)}."]
    return [part for part in parts if part]


def ended_words(iteration: IterationTrace) -> str:
    """The setting or gate that ended an accepted path: why the token that came next was not verified; empty if it was.

    Args:
        iteration: recorded in full.
    """
    if not iteration.nodes or iteration.final_kind == "none":
        return ""
    place, token = (iteration.accepted or (0,))[-1], iteration.committed_ids[-1]
    known = Known(iteration)
    child = next((node.node_id for node in known.children.get(place, ()) if node.token_id == token), None)
    why = why_absent(iteration, place, token, known) if child is None else why_pruned(iteration, child, known)
    after = quote(iteration.nodes[place].text) if place else "the last committed token"
    missed = (
        f"{quote(iteration.committed_texts[-1])} after {after} was not {'in the tree' if child is None else 'verified'}"
    )
    return f"In iteration {iteration.index + 1}, {missed}. {why}" if why else ""


def _depths(run: RunTrace, places: Sequence[int]) -> str:
    """How deep the verified tree of each iteration was: `3 tokens in iteration 1, 4 in iteration 2`."""
    depths = [run.iterations[place].tree_depth for place in places]
    first, *later = [f"{depth} in iteration {place + 1}" for depth, place in zip(depths, places, strict=True)]
    return ", ".join([first.replace(" in", " token in" if depths[0] == 1 else " tokens in", 1), *later])


def _beside(line: BottomLine) -> str:
    """The best one over the strongest rival in the same repeats, which says why neither is named the faster."""
    rival = max(line.rivals, key=lambda each: each.figure.value)
    ratio = between(line.best, rival)
    if ratio is None or not ratio.decides:
        return ""
    return f" ({line.best.label} over {rival.label}: {ratio.value:.2f}×, {ratio.low:.2f} to {ratio.high:.2f})"


def _unsure(line: BottomLine) -> str:
    """Why a rival with a higher figure is not named first: its own interval does not say that it is faster at all."""
    above = [each for each in line.rivals if each.figure.value > line.best.figure.value]
    if not above:
        return ""
    first = above[0]
    if not first.figure.decides:
        return f" {first.label} has {figure_words(first.figure)}, too few to be sure of."
    return f" {first.label} has {figure_words(first.figure)}, which may be no gain."


def _without_plain(line: BottomLine, where: str) -> str:
    """The best of the measured methods: without plain decoding nothing says whether any of them pays."""
    best, figure = line.best, line.best.figure
    unknown = "To see whether speculating pays at all, measure Autoregressive too"
    if line.winner is not None:
        return f"Of these, {best.label} is the fastest {where}: {figure.value:.1f} tokens/s. {unknown}."
    said = f"No verdict from {_counted(figure)}: {best.label} reached {figure.value:.1f} tokens/s over the call, "
    said += "prefill included."
    if line.rivals and figure.decides:
        said = (
            f"{best.label} reached {figure.value:.1f} tokens/s; {_rivals(line)} may be as fast. {_decides_words(line)}"
        )
    return f"{said} {unknown}, with at least {FEWEST} repeats."


def _decides_words(line: BottomLine) -> str:
    figure = line.best.figure
    if not figure.decides or not all(each.figure.decides for each in line.rivals):
        return f"At least {FEWEST} {figure.per}s would give intervals."
    if figure.per == "prompt":
        return "More prompts would decide it."
    if noisy := _noisy(line):
        return noisy
    if line.needed is None:
        if not line.rivals:
            return "It makes no difference."
        either = "either" if len(line.rivals) == 1 else "any"
        return f"Not even {MOST} repeats would tell them apart at this spread: take {either}."
    return f"At this spread about {line.needed} repeats would tell them apart."


def _noisy(line: BottomLine) -> str:
    """That repeats of the same work differ too much, and what to do; empty where they do not."""
    widest = max((line.best, *line.rivals), key=lambda each: each.figure.high / each.figure.low)
    if widest.figure.per == "prompt" or widest.figure.high <= NOISY * widest.figure.low:
        return ""
    over = f" over {line.plain}" if line.plain else ""
    return (
        f"Repeats of the same work differ too much to tell (the interval of {widest.label}{over} reaches from "
        f"{widest.figure.low:.2f} to {widest.figure.high:.2f}): stop other work on this machine and measure again, "
        "with more repeats."
    )


def _pays_words(best: Option) -> str:
    """When speculating pays: the tokens that an iteration has to commit, and those that it did."""
    if best.slowdown is None or best.without_prefill is None:
        return ""
    tokens = best.slowdown.mine.tokens
    passes = tokens / best.without_prefill
    if passes < 1:  # an iteration holds a pass of the target: other work has slowed plain decoding
        return ""
    return (
        f" Prefill left out ({best.without_prefill:.2f}×), an iteration takes as long as {passes:.2f} plain tokens and "
        f"commits {tokens:.2f}; where it commits fewer than {passes:.2f}, do not speculate."
    )


def _rivals(line: BottomLine) -> str:
    labels = [each.label for each in line.rivals]
    return listed([*labels[:SHOWN], f"{len(labels) - SHOWN} more"] if len(labels) > SHOWN + 1 else labels)


def _counted(figure: Interval) -> str:
    return "a single call" if (figure.count, figure.per) == (1, "repeat") else plural(figure.count, figure.per)
