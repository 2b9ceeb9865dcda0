"""Draft tokens by rank (SALF & TALF, Figure 2 and Appendix A): what trees are made of, and heads after each rank.

Which ranks the tokens of EAGLE-2's beams have in the distributions of a head, and how right and how well calibrated the
head is after its own n-th ranked token, on held-out prompts with what the target writes after them at temperature 1.
A calibration error is of all prompts together, as bins need many roots; what one prompt contributes is its jackknife
pseudo-value, n E - (n - 1) E without it, and their mean is free of most of the bias that few roots in a bin make.
"""

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch

from decoding.common.errors import run_main
from decoding.experiments.command import (
    add_counting_argument,
    add_job_argument,
    arguments,
    as_job,
    encoded_texts,
    in_steps,
    pair_from,
    parse_amounts,
    print_table,
    save_records,
)
from decoding.experiments.estimates import estimate, recorded
from decoding.experiments.rows import LOOP_FREE
from decoding.heads.head import with_draft
from decoding.heads.store import find_head, load_network
from decoding.methods.method import Method
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair
from decoding.models.presets import add_pair_arguments
from decoding.papers.paper_result import between
from decoding.papers.salf import LOSSES
from decoding.session.session import DecodeSession, Limits
from decoding.trace.metrics import COUNTINGS, LoopDetector
from decoding.trace.records import IterationTrace
from decoding.training.head_data import children_features, text_features
from decoding.training.head_learner import target_sides
from decoding.training.head_losses import Drafted, Sides, TextWindows, unroll
from decoding.training.text import continue_texts

RANKS = 5  # the last is the fifth or lower
BINS = 10  # of equal size; the paper does not say how many


def rank_counts(iteration: IterationTrace) -> np.ndarray:
    """How many verified tokens of a tree have each rank in the draft's distribution, `[RANKS]`.

    A tree that holds a token holds every likelier one with the same parent, so that ranks can be counted in it.
    """
    siblings, counts = Counter[int](), np.zeros(RANKS)
    for node in iteration.nodes[1:]:
        if not node.pruned and node.flat_index is not None:
            counts[min(siblings[node.parent_id], RANKS - 1)] += 1
            siblings[node.parent_id] += 1
    return counts


def rank_shares(counts: Sequence[np.ndarray]) -> np.ndarray:
    """The shares of the ranks in some trees, `[RANKS]`; nan without tokens."""
    total = np.sum(counts, 0) if len(counts) else np.zeros(RANKS)
    return total / total.sum() if total.any() else np.full(RANKS, np.nan)


def records_of_shares(
    pair: Pair, method: Method, line: str, text: Mapping[str, str], prompt_ids: list[int], tokens: int
) -> list[dict]:
    """By rank, its share of the verified tokens of the trees after one prompt."""
    session = DecodeSession(pair, method, prompt_ids, limits=Limits(tokens, ignore_end_of_text=True))
    trees = [(rank_counts(iteration), not iteration.in_loop) for iteration in session]
    counts, outside = zip(*trees, strict=True)
    whole, free = rank_shares(counts), rank_shares([each for each, is_free in trees if is_free])
    return [
        {"part": "shares", "line": line, **text, "rank": rank, "counted": len(trees), "share": share,
         LOOP_FREE + "counted": sum(outside), LOOP_FREE + "share": free[rank - 1]}
        for rank, share in enumerate(whole, 1) if np.isfinite(share)
    ]  # fmt: skip


@dataclass(frozen=True)
class Conditioned:
    """What a head says after its own n-th ranked token, at every root of one prompt."""

    right: np.ndarray  # bool `[roots, RANKS]`: its likeliest token is the target's
    confidence: np.ndarray  # its probability of the target's likeliest token, `[roots, RANKS]`
    # top, target_top: its own and the target's probability of its likeliest token, `[roots, RANKS]`
    top: np.ndarray
    target_top: np.ndarray
    outside: np.ndarray  # bool `[roots]`: the text does not repeat itself there

    def __len__(self) -> int:
        return len(self.right)

    def loop_free(self) -> "Conditioned":
        """The roots outside loops alone."""
        return Conditioned(*(getattr(self, each.name)[self.outside] for each in fields(self)))


def written_text(pair: Pair, prompt_ids: list[int], tokens: int, seed: int) -> np.ndarray:
    """A prompt with what the target writes after it at temperature 1."""
    text = list(prompt_ids)
    continue_texts(pair.target, [text], len(text) + tokens, 1.0, [np.random.default_rng(seed)])
    return np.array(text)


@torch.inference_mode()
def conditioned(pair: Pair, head: str, tokens: np.ndarray, first_root: int) -> Conditioned:
    """Draft one token, feed each of the five best back, and compare the next distribution with the target's choice.

    Roots are the tokens of a text from `first_root` on; `head` is the name of a stored head.
    """
    with_draft(pair, head)  # refuses a head of another target
    network, sides = load_network(find_head(head)).to(pair.target.device).eval(), target_sides(pair)
    features = text_features(pair.target, tokens)
    text = TextWindows(torch.from_numpy(tokens)[None].to(features.device), features[None].float(), 1)
    (out,) = unroll(network, sides.embed, text, None)
    children = _distribution(sides, out[0, :, 0]).topk(RANKS).indices  # [roots, RANKS]
    drafted = Drafted(children[None, None], torch.zeros_like(children)[None, None], features[:0])
    behind = unroll(network, sides.embed, text, drafted)[1][0]
    theirs = children_features(pair.target, tokens, children)
    probs, wanted_distribution = _distribution(sides, behind), _distribution(sides, theirs)
    wanted, (top, chosen) = wanted_distribution.argmax(-1, keepdim=True), probs.max(-1, keepdim=True)
    found = (chosen == wanted, probs.gather(-1, wanted), top, wanted_distribution.gather(-1, chosen))
    right, confidence, mine, theirs_of_it = (part[first_root - 1 :, :, 0].cpu().numpy() for part in found)
    loops, outside = LoopDetector(), []
    for token in tokens[first_root:].tolist():
        loops.push((token,))
        outside.append(not loops.in_loop)
    return Conditioned(right, confidence, mine, theirs_of_it, np.array(outside))


def accuracy(parts: Sequence[Conditioned], rank: int, prompts: np.ndarray) -> float:
    """Share of roots after which the head's likeliest token is the target's; rank from 0."""
    return float(_rows(parts, "right", rank, prompts).mean())


def calibration_error(parts: Sequence[Conditioned], rank: int, prompts: np.ndarray) -> float:
    """Expected calibration error as in Appendix A: bins by the head's probability of the target's likeliest token.

    A head that equals an unsure target does not reach 0: it is as unsure, and right all the same.
    """
    right, confidence = (_rows(parts, name, rank, prompts) for name in ("right", "confidence"))
    return _binned_gap(right, confidence)


def distribution_calibration_error(parts: Sequence[Conditioned], rank: int, prompts: np.ndarray) -> float:
    """The same against the target's distribution: bins by the head's probability of its choice; 0 for the target.

    How often the target draws that token is its probability, so nothing is drawn.
    """
    share, confidence = (_rows(parts, name, rank, prompts) for name in ("target_top", "top"))
    return _binned_gap(share, confidence)


def _rows(parts: Sequence[Conditioned], name: str, rank: int, prompts: np.ndarray) -> np.ndarray:
    return np.concatenate([getattr(parts[number], name)[:, rank] for number in prompts])


def _binned_gap(right: np.ndarray, confidence: np.ndarray) -> float:
    """Mean distance of the two in `BINS` bins of equal size by confidence."""
    order = np.argsort(confidence, kind="stable")
    bins = [part for part in np.array_split(order, BINS) if len(part)]
    return float(sum(len(part) * abs(right[part].mean() - confidence[part].mean()) for part in bins) / len(order))


def _distribution(sides: Sides, features: torch.Tensor) -> torch.Tensor:
    return torch.softmax(sides.project(features).float(), -1)


FIGURES = {"accuracy": accuracy, "ece": calibration_error, "distribution_ece": distribution_calibration_error}


def records_behind_ranks(parts: Sequence[Conditioned], line: str, texts: Sequence[Mapping[str, str]]) -> list[dict]:
    """What every prompt contributes to the figures of one head after each of its ranked tokens."""
    free = {number: kept for number, part in enumerate(parts) if len(kept := part.loop_free())}
    records = []
    for rank in range(RANKS):
        whole, outside = _contributions(parts, rank), _contributions(list(free.values()), rank)
        loop_free = dict(zip(free, outside, strict=True))
        for number, (text, found) in enumerate(zip(texts, whole, strict=True)):
            also = {LOOP_FREE + name: value for name, value in loop_free.get(number, {}).items()}
            records.append({"part": "behind", "line": line, **text, "rank": rank + 1, **found, **also})
    return records


def _contributions(parts: Sequence[Conditioned], rank: int) -> list[dict[str, float]]:
    """What every prompt contributes to the figures after the token of one rank."""
    every, made = np.arange(len(parts)), []
    whole = {name: figure(parts, rank, every) for name, figure in FIGURES.items()} if len(parts) else {}
    for prompt, part in enumerate(parts):
        found = {"counted": float(len(part)), "accuracy": accuracy(parts, rank, every[prompt : prompt + 1])}
        if len(every) > 1:
            rest = np.delete(every, prompt)
            found |= {name: len(every) * whole[name] - (len(every) - 1) * FIGURES[name](parts, rank, rest)
                      for name in ("ece", "distribution_ece")}  # fmt: skip
        made.append(found)
    return made


def protocol(
    prompts: Sequence[tuple[Any, list[int]]], new_tokens: int, heads: Sequence[str]
) -> dict[str, dict[str, str]]:
    """How the records of each part are measured, see `decoding.papers.stored`."""
    trees, steps = METHODS["eagle2"].settings(), sorted({find_head(each).figures["steps"] for each in heads})
    common = {"prompt_tokens": between(len(ids) for _, ids in prompts), "new_tokens": f"{new_tokens:,}"}
    trained = f"heads trained for {' or '.join(f'{each:,.0f}' for each in steps)} steps each"
    return {
        "shares": common | {
            "sampling": "greedy", "repeats": "the trees of one run of each", "setup": "{}, trees of at most {} nodes, "
            "{} expanded on a level, depth {}".format(
                trained, trees["node_budget"], trees["beam_width"], trees["max_depth"])},
        "behind": common | {
            "sampling": "T = 1", "repeats": "every place of one text that the target writes after each",
            "setup": f"{trained}, {BINS} bins of the calibration error"},
    }  # fmt: skip


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    add_job_argument(parser)
    add_counting_argument(parser, "whole")
    parser.add_argument("--heads", nargs="+", default=list(LOSSES), metavar="NAME", help="EAGLE's, HASS's and TALF's")
    args = parse_amounts(parser, count=(24, 4, "prompts"), max_new_tokens=(128, 32, "per prompt"))
    return as_job(args, measure)


def measure(args: argparse.Namespace) -> None:
    """Measure, print and keep what the arguments ask for."""
    started = time.perf_counter()
    pair = pair_from(args)
    prompts = encoded_texts(pair, args.prompts, args.count)
    tokens = args.max_new_tokens
    texts = [(written_text(pair, ids, tokens, seed), len(ids)) for seed, (_, ids) in enumerate(prompts)]
    records: list[dict] = []
    heads = list(zip(LOSSES, args.heads, strict=True))
    for (loss, head), (columns, ids) in in_steps(args, product(heads, prompts), len(heads) * len(prompts)):
        method = METHODS["eagle2"].with_settings(draft_head=head, verifier="greedy")
        records += records_of_shares(pair, method, loss, columns, ids, tokens)
    for loss, head in in_steps(args, heads, len(heads), "reading texts"):
        parts = [conditioned(pair, head, text, first) for text, first in texts]
        records += records_behind_ranks(parts, loss, [columns for columns, _ in prompts])
    print(f"{pair.info.name}, {pair.target.info.device}, {len(prompts)} prompts x {tokens} tokens; means over prompts, "
          f"{COUNTINGS[args.counted]}")  # fmt: skip
    shown = recorded(pd.DataFrame(records), args.counted).groupby(["rank", "line"])
    for name in ("share", *FIGURES):
        found = {place: here[name].dropna() for place, here in shown if name in here}
        print(f"\n{name} by rank")
        rows = [(rank, *(estimate(each) if len(each := found.get((rank, loss), ())) else "-" for loss in LOSSES))
                for rank in range(1, RANKS + 1)]  # fmt: skip
        print_table(("rank", *LOSSES.values()), rows)
    save_records(args, "draft_ranks", pair, records, started, protocol=protocol(prompts, tokens, args.heads))


if __name__ == "__main__":
    run_main(main)
