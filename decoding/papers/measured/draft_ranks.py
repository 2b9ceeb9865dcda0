"""Draft tokens by rank (SALF & TALF, Figure 2 and Appendix A): what trees are made of, and heads after each rank.

Which ranks the tokens of EAGLE-2's beams have in the distributions of a head, and how right and how well calibrated the
head is after its own n-th ranked token, on held-out prompts with what the target writes after them at temperature 1.
A calibration error is of all prompts together, as bins need many roots; what one prompt contributes is its jackknife
pseudo-value, n E - (n - 1) E without it, and their mean is free of most of the bias that few roots in a bin make.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from decoding.common.errors import run_main
from decoding.experiments.command import arguments, encoded_prompts, pair_from, print_table, save_records
from decoding.experiments.estimates import estimate
from decoding.heads.head import with_draft
from decoding.heads.store import find_head, load_network
from decoding.methods.method import Method
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair
from decoding.models.presets import add_pair_arguments
from decoding.papers.salf import LOSSES
from decoding.session.session import DecodeSession, Limits
from decoding.training.head_data import children_features, text_features
from decoding.training.head_learner import target_sides
from decoding.training.head_losses import Drafted, Sides, TextWindows, unroll
from decoding.training.text import continue_texts

RANKS = 5  # the last is the fifth or lower
BINS = 10  # of equal size; the paper does not say how many


def rank_shares(pair: Pair, method: Method, prompt_ids: list[int], tokens: int) -> np.ndarray:
    """Shares `[RANKS]` of the verified tokens of a prompt's trees by rank in the draft's distribution; nan without any.

    A tree that holds a token holds every likelier one with the same parent, so that ranks can be counted in it.
    """
    session = DecodeSession(pair, method, prompt_ids, limits=Limits(tokens, ignore_end_of_text=True))
    counts = np.zeros(RANKS)
    for iteration in session:
        siblings: Counter[int] = Counter()
        for node in [] if iteration.in_loop else iteration.nodes[1:]:
            if not node.pruned and node.flat_index is not None:
                counts[min(siblings[node.parent_id], RANKS - 1)] += 1
                siblings[node.parent_id] += 1
    return counts / counts.sum() if counts.any() else np.full(RANKS, np.nan)


@dataclass(frozen=True)
class Conditioned:
    """What a head says after its own n-th ranked token, at every root of one prompt."""

    right: np.ndarray  # bool `[roots, RANKS]`: its likeliest token is the target's
    confidence: np.ndarray  # its probability of the target's likeliest token, `[roots, RANKS]`
    # top, target_top: its own and the target's probability of its likeliest token, `[roots, RANKS]`
    top: np.ndarray
    target_top: np.ndarray


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
    return Conditioned(*(part[first_root - 1 :, :, 0].cpu().numpy() for part in found))


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


def records_behind_ranks(parts: Sequence[Conditioned], line: str, samples: Sequence[str]) -> list[dict]:
    """What every prompt contributes to the figures of one head after each of its ranked tokens."""
    every = np.arange(len(parts))
    records = []
    for rank in range(RANKS):
        whole = {name: figure(parts, rank, every) for name, figure in FIGURES.items()}
        for prompt, sample in enumerate(samples):
            found = {"accuracy": accuracy(parts, rank, every[prompt : prompt + 1])}
            if len(every) > 1:
                rest = np.delete(every, prompt)
                found |= {name: len(every) * whole[name] - (len(every) - 1) * FIGURES[name](parts, rank, rest)
                          for name in ("ece", "distribution_ece")}  # fmt: skip
            records.append({"part": "behind", "line": line, "sample": sample, "rank": rank + 1, **found})
    return records


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    parser.add_argument("--count", type=int, metavar="N", help="prompts (24; 4 with --quick)")
    parser.add_argument("--max-new-tokens", type=int, metavar="N", help="per prompt (128; 32 with --quick)")
    parser.add_argument("--heads", nargs="+", default=list(LOSSES), metavar="NAME", help="EAGLE's, HASS's and TALF's")
    args = parser.parse_args()
    started = time.perf_counter()
    pair = pair_from(args)
    prompts = encoded_prompts(pair, args.prompts, args.count or (4 if args.quick else 24))
    tokens = args.max_new_tokens or (32 if args.quick else 128)
    texts = [(written_text(pair, ids, tokens, seed), len(ids)) for seed, (_, ids) in enumerate(prompts)]
    records: list[dict] = []
    for loss, head in zip(LOSSES, args.heads, strict=True):
        method = METHODS["eagle2"].with_settings(draft_head=head, verifier="greedy")
        for sample, ids in prompts:
            shares = rank_shares(pair, method, ids, tokens)
            records += [{"part": "shares", "line": loss, "sample": sample, "rank": rank, "share": share}
                        for rank, share in enumerate(shares, 1) if np.isfinite(share)]  # fmt: skip
        parts = [conditioned(pair, head, text, first) for text, first in texts]
        records += records_behind_ranks(parts, loss, [sample for sample, _ in prompts])
    print(f"{pair.info.name}, {pair.target.info.device}, {len(prompts)} prompts x {tokens} tokens; means over prompts")
    for name in ("share", *FIGURES):
        found = [[[each[name] for each in records if (each["line"], each["rank"]) == (loss, rank) and name in each]
                  for loss in LOSSES] for rank in range(1, RANKS + 1)]  # fmt: skip
        print(f"\n{name} by rank")
        rows = [(rank, *(estimate(each) if each else "-" for each in row)) for rank, row in enumerate(found, 1)]
        print_table(("rank", *LOSSES.values()), rows)
    save_records(args, "draft_ranks", pair, records, started)
    return 0


if __name__ == "__main__":
    run_main(main)
