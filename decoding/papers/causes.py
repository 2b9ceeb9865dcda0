"""Why a claim of a paper does not hold here, or is not decided: one or two sentences from the rows it was judged by."""

from collections import Counter
from typing import NamedTuple

import numpy as np
import pandas as pd

from decoding.papers.dyspec import KERNEL_BLOCK, PAPER_BLOCK
from decoding.papers.paper_result import (
    COMMITTED_OVER_DRAFTED,
    MEMORY,
    PATH,
    PER_PASS,
    THROUGHPUT,
    TTFT,
    Figure,
    Ordering,
    PaperResult,
)

DRAFTED = ["drafted", "accepted"]
TIMED = {"draft_s": "drafting", "verify_s": "verifying"}
SAME = 0.02  # smaller shares count as equal
OF_PASSES = ("throughput", "speedup", "tpot_s")  # explained by what passes commit and how long they take
OF_TREES = (PER_PASS, PATH, COMMITTED_OVER_DRAFTED)  # by what is drafted and accepted
EXPECTED = (PER_PASS.column, THROUGHPUT.column)  # of records on trees, both exact over verification
FORWARDS = ("forwards", "drafted", "draft_ms")  # of records on drafting
# Columns of runs that causes read
CAUSES = (*DRAFTED, *TIMED, "iterations", "wall_s", "ttft_s", "prefill_s", "tokens_per_iteration", "draft_forwards",
          "nodes_per_pass", "part_ms", "drafted_per_pass", "forwards_per_pass")  # fmt: skip


class Side(NamedTuple):
    """One of the two entries of a claim: its name, its rows, and its figure for each prompt that both have."""

    words: str
    rows: pd.DataFrame
    figures: np.ndarray


def cause_of(paper_result: PaperResult, ordering: Ordering, better: Side, worse: Side, known: pd.DataFrame) -> str:
    """The cause that the rows show; both figures and how many prompts agree where they show none.

    Args:
        known: all rows of the paper result, those of other entries too.
    """
    figure, columns = ordering.figure, {*better.rows} & {*worse.rows}
    names, rows = (better.words, worse.words), (better.rows, worse.rows)
    numbers = apart(figure, better, worse)
    if figure.column != "ece":  # of all samples together: what is kept of each is no error of its own
        numbers += agreeing(ordering, better, worse, paper_result)
    if paper_result.stored:
        if {*EXPECTED} <= columns:
            return of_trees(*rows, *names)
        if {*FORWARDS} <= columns:
            return f"{numbers} {of_drafting(*rows, *names)}"
        if paper_result.stored == "mask_order":
            return f"{numbers} {of_masks(figure, rows[0], known)}"
        if figure.column == "ece":
            return f"{numbers} {of_calibration(*rows, *names)}"
    elif paper_result.view == "phases":
        return f"{numbers} {of_parts(*rows, *names)}"
    elif paper_result.view == "runs":
        if figure.column in OF_PASSES:
            return of_time(*rows, *names)
        if figure in OF_TREES and not pd.concat(rows)[DRAFTED].isna().any(axis=None):
            said = of_tokens(*rows, *names)
            return said if figure == PER_PASS else f"{numbers} {said}"
        if figure == TTFT and not pd.concat(rows)["prefill_s"].isna().any():
            return f"{numbers} {of_first_token(*rows, *names)}"
        if figure == MEMORY and all(each["draft_forwards"].fillna(0).any() for each in rows):
            return f"{numbers} {of_memory(*rows, *names)}"
    return numbers


def apart(figure: Figure, better: Side, worse: Side) -> str:
    """One sentence: both figures as measured on the same samples."""
    one, other = (f"{figure.scale * each.figures.mean():,.{figure.digits}f}" for each in (better, worse))
    return f"{figure.words[:1].upper()}{figure.words[1:]}: {one} for {better.words}, {other} for {worse.words}."


def agreeing(ordering: Ordering, better: Side, worse: Side, paper_result: PaperResult) -> str:
    """One sentence on how many samples show the paper's order when each is taken alone, where some do and some do not.

    That is what leaves a claim undecided.
    """
    ahead = np.sign(better.figures - worse.figures) * (1 if ordering.higher else -1)
    if len(set(ahead)) == 1:
        return ""
    sample = "sample" if paper_result.stored else "prompt"
    return f" {(ahead > 0).sum()} of {len(ahead)} {sample}s taken alone show the paper's order."


def of_time(better: pd.DataFrame, worse: pd.DataFrame, better_name: str, worse_name: str) -> str:
    """One sentence on the entry that the paper ranks first, from results of both on the same machine."""
    one, other = _means(better), _means(worse)
    tokens, taken = one["tokens"] / other["tokens"] - 1, one["pass_s"] / other["pass_s"] - 1
    more = _by_share(
        tokens, "about as many tokens per pass as", *(f"{way} tokens per pass than" for way in ("more", "fewer"))
    )
    parts = [f"{better_name} commits {more} {worse_name}"]
    parts.append(f"its passes take {_by_share(taken, 'about as long', 'longer', 'less time')}")
    name = max(TIMED, key=lambda phase: one[phase] - other[phase])
    apart = one[name] - other[name]
    if taken > SAME and apart > 0:
        parts.append(
            f"most of the difference is {TIMED[name]} ({1000 * one[name]:.2f} ms against {1000 * other[name]:.2f} ms)"
        )
    draft = one["draft_s"] / one["forwards"] if one["forwards"] else 0.0
    if draft and one["verify_s"]:
        parts.append(f"a draft forward takes {draft / one['verify_s']:.0%} of the time of a verification")
    return "; ".join([" and ".join(parts[:2]), *parts[2:]]) + "."


def of_tokens(better: pd.DataFrame, worse: pd.DataFrame, better_name: str, worse_name: str) -> str:
    """One sentence on the tokens per pass of two entries: how many are drafted and how many of these are accepted."""
    counts = []
    for name, rows in ((better_name, better), (worse_name, worse)):
        drafted, accepted = (rows[column] / rows["iterations"] for column in DRAFTED)
        share = accepted.mean() / drafted.mean() if drafted.mean() else 0.0
        counts.append(f"{name} {drafted.mean():.1f}, of which {accepted.mean():.2f} are accepted ({share:.1%})")
    return f"Tokens drafted per pass: {counts[0]}; {counts[1]}."


def of_first_token(better: pd.DataFrame, worse: pd.DataFrame, better_name: str, worse_name: str) -> str:
    """One sentence on the time to the first token: how much of it reads the prompt, and with which models."""
    parts = []
    for name, rows in ((better_name, better), (worse_name, worse)):
        read, rest = (1000 * each.mean() for each in (rows["prefill_s"], rows["ttft_s"] - rows["prefill_s"]))
        models = "both models" if rows["draft_forwards"].fillna(0).any() else "the target alone"
        parts.append(f"{name} reads the prompt with {models} in {read:,.1f} ms and takes {rest:,.1f} ms after it")
    return f"{'; '.join(parts)}."


def of_memory(better: pd.DataFrame, worse: pd.DataFrame, better_name: str, worse_name: str) -> str:
    """One sentence on peak memory of two methods that draft: with the same models a pass's nodes alone differ."""
    nodes = [f"{rows['nodes_per_pass'].mean():.1f} of {name}" for name, rows in
             ((better_name, better), (worse_name, worse))]  # fmt: skip
    return f"Both hold both models and the text's KV slots; they differ in the nodes of a pass, {' and '.join(nodes)}."


def of_parts(better: pd.DataFrame, worse: pd.DataFrame, better_name: str, worse_name: str) -> str:
    """One sentence on two parts of an iteration: what each takes, for how many nodes and forwards."""
    one, other = (f"{rows['part_ms'].mean():.2f} ms" for rows in (better, worse))
    nodes, forwards = (better[name].mean() for name in ("drafted_per_pass", "forwards_per_pass"))
    return (f"An iteration drafts {nodes:.1f} nodes in {forwards:.1f} draft forwards: {one} of {_lower(better_name)}, "
            f"{other} of {_lower(worse_name)}.")  # fmt: skip


def of_drafting(better: pd.DataFrame, worse: pd.DataFrame, better_name: str, worse_name: str) -> str:
    """One sentence on what two ways to draft took: forwards, nodes, and the time of a forward."""
    parts = []
    for name, rows in ((better_name, better), (worse_name, worse)):
        each = (rows["draft_ms"] / rows["forwards"]).mean()
        parts.append(
            f"{name} drafts {rows['drafted'].mean():.1f} nodes in {rows['forwards'].mean():.1f} forwards of "
            f"{each:.2f} ms with all that is between them"
        )
    return f"{'; '.join(parts)}."


def of_masks(figure: Figure, rows: pd.DataFrame, known: pd.DataFrame) -> str:
    """One sentence on orders of mask rows: how many blocks each leaves to read in trees of this size.

    Attention is timed on other random trees than the ones whose blocks are counted.
    """
    part, nodes = ("random" if figure.timed else rows["part"].iloc[0]), rows["nodes"].iloc[0]
    block, column = (KERNEL_BLOCK, f"blocks_{KERNEL_BLOCK}") if figure.timed else (PAPER_BLOCK, figure.column)
    counts = known[(known["part"] == part) & (known["nodes"] == nodes) & (known["prefix"] == rows["prefix"].iloc[0])]
    by_order = counts.groupby("line")[column].mean()
    low, high = (f"{each:,.1f}" for each in (by_order.min(), by_order.max()))
    many, order = (low, "in every order") if low == high else (f"{low} to {high}", "depending on the order")
    trees = f"{part} trees of {nodes:,} nodes have {many}"
    if figure.timed:
        return f"Attention skips empty blocks of {block} x {block}: {trees} others {order}."
    return f"{trees.capitalize()} such blocks {order}."


def of_calibration(better: pd.DataFrame, worse: pd.DataFrame, better_name: str, worse_name: str) -> str:
    """One sentence on two heads whose errors are taken over the probability of the target's likeliest token."""
    right, error = ([100 * rows[name].mean() for rows in (better, worse)] for name in ("accuracy", "distribution_ece"))
    return (
        f"The error is the distance of how often a head is right ({right[0]:.1f}% for {better_name}, {right[1]:.1f}% "
        f"for {worse_name}) from its probability of the target's likeliest token, so that being as unsure as the "
        f"target counts as error; against the target's distribution the error is {error[0]:.1f} points for "
        f"{better_name} and {error[1]:.1f} for {worse_name}."
    )


def of_trees(better: pd.DataFrame, worse: pd.DataFrame, better_name: str, worse_name: str) -> str:
    """One sentence on two entries of trees: which were best, their tokens, and the modelled time of an iteration."""
    parts = []
    for name, rows in ((better_name, better), (worse_name, worse)):
        tokens, seconds = rows[PER_PASS.column].mean(), (rows[PER_PASS.column] / rows[THROUGHPUT.column]).mean()
        shape = ""
        if {"settings.paths", "settings.length"} <= {*rows} and rows["settings.paths"].notna().all():
            (paths, length), _ = Counter(zip(rows["settings.paths"], rows["settings.length"], strict=True)).most_common(
                1
            )[0]
            shape = f" (mostly K {paths:.0f}, L {length:.0f})"
        parts.append(f"{name}{shape} commits {tokens:.2f} tokens in {1000 * seconds:.1f} ms")
    return f"In an iteration {', '.join(parts)}."


def _means(rows: pd.DataFrame) -> dict[str, float]:
    """Per pass, means over rows: tokens, seconds, seconds by phase, draft forwards."""
    passes = rows["iterations"]
    figures = {
        "tokens": rows["tokens_per_iteration"],
        # Without the first, which reads the prompt: baselines do not report prefill separately.
        "pass_s": (rows["wall_s"] - rows["ttft_s"]) / (passes - 1).clip(lower=1),
        "forwards": rows["draft_forwards"].fillna(0) / passes,
    }
    figures |= {phase: rows[phase].fillna(0) / passes for phase in TIMED}
    return {name: float(np.mean(values)) for name, values in figures.items()}


def _by_share(share: float, same: str, more: str, less: str) -> str:
    return same if abs(share) < SAME else f"{abs(share):.0%} {more if share > 0 else less}"


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]
