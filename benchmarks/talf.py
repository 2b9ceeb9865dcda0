"""SALF & TALF on a pair with trained heads: Tables 2 to 4, and where the paper's orderings hold here.

Every search with every head decodes the same held-out prompts greedily, interleaved in one run, so that drift of the
machine hits all alike, counted as `--counted` says. Beside it stands what each is exactly worth at temperature 1: its
trees at evenly spaced roots of text that the target drew, outside loops, verified by node-by-node sampling. Tokens are
means over prompts, speeds medians, with 95% intervals of the bootstrap over prompts; orderings are judged as all claims
of the papers are, by relative gains on the same prompts. The paper's figures are means over its tasks with
DeepSeek-R1-Distill-Llama-8B on a GPU: what can be compared is the order, not the height.
"""

import time
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field

import numpy as np

from decoding.common.errors import PromptError, run_main
from decoding.compare.comparison import compare
from decoding.compare.contestants import Contestant
from decoding.experiments.command import (
    add_counting_argument,
    arguments,
    encoded_prompts,
    pair_from,
    print_table,
    save_figures,
)
from decoding.experiments.estimates import Estimate, estimate, middle, ratio_gain
from decoding.heads.store import all_heads, find_head
from decoding.methods.method import Method
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair
from decoding.models.presets import add_pair_arguments
from decoding.papers import salf
from decoding.papers.judge import EQUAL, verdict
from decoding.papers.measured.depth_divergence import roots
from decoding.papers.salf import LOSSES, THRESHOLDS, WITH_HEADS
from decoding.sampling.sampling import Sampling
from decoding.trace.metrics import COUNTINGS, Counting, RunMetrics

SEARCHES = {"beam": "Beam search", "optimal": "Optimal search", "salf": "SALF"}
WIDTHS = {head: words for head, (words, _) in salf.WIDTHS.items()}
# Means of the paper: Table 2 (speed-up, tokens per pass), Table 3 (tokens per pass; mean of its three tasks), Table 4.
PAPER_2 = {(search, loss): found for search, words in SEARCHES.items() for loss, found in WITH_HEADS[words][1].items()}
PAPER_3 = {head: tokens for head, (_, tokens) in salf.WIDTHS.items()}
FIGURES = {"tokens": "tokens", "expected": "tokens at T=1", "speed": "speed"}
HEADER = ("tokens per pass", "at T=1, exact", "paper", "speed-up", "paper", "nodes", "draft forwards")


@dataclass(frozen=True)
class HeadMeasured:
    """What one way to draft reached on every prompt, all `[prompts]`.

    Attributes:
        tokens: per verification pass, decoded greedily.
        expected: tokens per pass at temperature 1, the exact expectation over verification.
        speed: throughput over that of decoding without a draft, greedy.
        forwards: draft forwards per pass.
        nodes: verified per pass.
    """

    tokens: np.ndarray
    expected: np.ndarray
    speed: np.ndarray
    forwards: np.ndarray
    nodes: np.ndarray


@dataclass(frozen=True)
class Claim:
    """An ordering of the paper, the relative gain there and here, and whether it holds here."""

    words: str
    paper: float
    found: Estimate
    verdict: str


@dataclass
class Claims:
    """All orderings that were judged."""

    made: list[Claim] = field(default_factory=list)

    def add(self, words: str, paper: float, found: Estimate) -> None:
        """Judge that a relative gain is above 0."""
        self.made.append(Claim(words, paper, found, verdict(found)))

    def add_same(self, words: str, paper: float, found: Estimate) -> None:
        """Judge that a relative gain is next to nothing."""
        said = verdict(found)
        same = "holds" if said.startswith("equal") else "does not hold" if said == "holds" else said
        self.made.append(Claim(words, paper, found, same))

    def table_2(self, words: str, measured: dict, better: tuple, worse: tuple, *of: str) -> None:
        """Judge that one search and loss of Table 2 is above another, by name of the figure or in all of them."""
        for name in of or FIGURES:
            place = 0 if name == "speed" else 1
            paper = PAPER_2[better][place] / PAPER_2[worse][place] - 1
            self.add(f"{words}, {FIGURES[name]}", paper, gain(measured[better], measured[worse], name))

    def show(self) -> None:
        """A line per ordering."""
        print("\nThe paper's orderings: relative gain here with its 95% interval, and in the paper")
        rows = [
            (claim.words, f"{claim.found.value:+.1%} ({claim.found.low:+.1%} to {claim.found.high:+.1%})",
             f"{claim.paper:+.1%}", claim.verdict)
            for claim in self.made
        ]  # fmt: skip
        print_table(("ordering", "here", "paper", ""), rows)
        print("; ".join(f"{words}: {count}" for words, count in Counter(claim.verdict for claim in self.made).items()))


def gain(better: HeadMeasured, worse: HeadMeasured, name: str) -> Estimate:
    """How much more one reaches than another on the same prompts, as a share, by the name of a figure."""
    return ratio_gain(getattr(better, name), getattr(worse, name))


def _cells(found: HeadMeasured, paper: tuple[float, float]) -> tuple:
    """What a row tells of a way: tokens per pass and speed-up, the paper's beside them; nodes and draft forwards."""
    return (
        estimate(found.tokens),
        estimate(found.expected),
        f"{paper[1]:.2f}",
        middle(found.speed),
        f"{paper[0]:.2f}",
        f"{found.nodes.mean():.1f}",
        f"{found.forwards.mean():.1f}",
    )


def _kept(found: HeadMeasured, paper: tuple[float, float]) -> dict:
    """The same for the file of figures."""
    tokens, expected, speed = estimate(found.tokens), estimate(found.expected), middle(found.speed)
    return {"tokens": vars(tokens), "expected": vars(expected), "speed": vars(speed), "paper": paper}


def table_2(measured: dict, claims: Claims) -> dict:
    """Tree construction times loss."""
    print("\nTable 2: tree construction and loss")
    ways = [(search, loss) for search in SEARCHES for loss in LOSSES]
    rows = [(f"{SEARCHES[way[0]]}, {LOSSES[way[1]]}", *_cells(measured[way], PAPER_2[way])) for way in ways]
    print_table(("search, loss", *HEADER), rows)
    for search, words in SEARCHES.items():
        for better, worse in (("hass", "eagle"), ("talf", "hass"), ("talf", "eagle")):
            which = f"{words}: {LOSSES[better]} over {LOSSES[worse]}"
            claims.table_2(which, measured, (search, better), (search, worse))
    for loss, words in LOSSES.items():
        beam, optimal, salf = ((search, loss) for search in SEARCHES)
        claims.table_2(f"{words}: optimal search over beam", measured, optimal, beam)
        claims.table_2(f"{words}: optimal search over SALF", measured, optimal, salf, "tokens", "expected")
        claims.table_2(f"{words}: SALF over optimal search", measured, salf, optimal, "speed")
        claims.table_2(f"{words}: SALF over beam", measured, salf, beam, "speed")
    return {" ".join(way): _kept(measured[way], PAPER_2[way]) for way in ways}


def table_3(measured: dict, claims: Claims) -> dict:
    """Width of the trees that TALF trains on, with optimal search, for the heads that are there."""
    print("\nTable 3: tokens per pass by the width of the training trees, optimal search")
    found = {head: measured["optimal", head] for head in WIDTHS if ("optimal", head) in measured}
    rows = [(WIDTHS[head], estimate(each.tokens), estimate(each.expected), f"{PAPER_3[head]:.2f}")
            for head, each in found.items()]  # fmt: skip
    print_table(("loss", *HEADER[:3]), rows)
    missing = [head for head in WIDTHS if head not in found]
    if missing:
        print(f"not there: {', '.join(missing)}; train them with python -m decoding.training.head_suite")
    for worse, better in (("talf_top1", "talf_top2"), ("talf_top2", "talf"), ("hass", "talf_top1")):
        for name in ("tokens", "expected") if worse in found and better in found else ():
            paper, gained = PAPER_3[better] / PAPER_3[worse] - 1, gain(found[better], found[worse], name)
            if worse == "hass":
                claims.add_same(f"TALF (top-1) within {EQUAL:.0%} of HASS, {FIGURES[name]}", paper, gained)
            else:
                claims.add(f"{WIDTHS[better]} over {WIDTHS[worse]}, {FIGURES[name]}", paper, gained)
    return {head: {"tokens": vars(estimate(each.tokens)), "expected": vars(estimate(each.expected)),
                   "paper": PAPER_3[head]} for head, each in found.items()}  # fmt: skip


def table_4(by_threshold: dict[float, HeadMeasured], claims: Claims) -> dict:
    """SALF's threshold, with TALF's head."""
    print("\nTable 4: SALF's threshold, TALF head")
    rows = [(f"{threshold:.1f}", *_cells(found, THRESHOLDS[threshold])) for threshold, found in by_threshold.items()]
    print_table(("threshold", *HEADER), rows)
    lowest, highest = by_threshold[0.0], by_threshold[0.9]
    for name in ("tokens", "expected"):
        paper = THRESHOLDS[0.0][1] / THRESHOLDS[0.9][1] - 1
        claims.add(f"threshold 0.0 over 0.9, {FIGURES[name]}", paper, gain(lowest, highest, name))
    for other in (0.0, 0.9):
        paper = THRESHOLDS[0.5][0] / THRESHOLDS[other][0] - 1
        claims.add(f"threshold 0.5 over {other}, speed", paper, gain(by_threshold[0.5], by_threshold[other], "speed"))
    fastest = max(by_threshold, key=lambda value: np.median(by_threshold[value].speed))
    print(f"fastest here: threshold {fastest:g}; in the paper: 0.5")
    return {f"{threshold:g}": _kept(found, THRESHOLDS[threshold]) for threshold, found in by_threshold.items()}


AUTOREGRESSIVE = "autoregressive"
DEFAULT_THRESHOLD = 0.6
Key = tuple[str, str]  # search and head


def method_of(search: str, head: str, nodes: int) -> Method:
    """A way to draft with a head; a search is one of `SEARCHES` or a threshold of SALF, its settings the paper's."""
    if search == "beam":
        method = METHODS["eagle2"].with_settings(node_budget=nodes, beam_width=10, max_depth=7)
    else:
        threshold = {"optimal": 0.0, "salf": DEFAULT_THRESHOLD}.get(search)
        least = float(search) if threshold is None else threshold
        method = METHODS["salf"].with_settings(node_budget=nodes, batch=10, gain_threshold=least)
    return method.with_settings(draft_head=head, verifier="greedy")


def search_of(threshold: float) -> str:
    """The search with a threshold, under its name in Table 2 where it has one."""
    return {0.0: "optimal", DEFAULT_THRESHOLD: "salf"}.get(threshold, f"{threshold:g}")


def ways(quick: bool, heads: Container[str] = tuple(WIDTHS)) -> list[Key]:
    """Every way to draft: those of Table 2, then what Tables 3 and 4 add; of Table 3 those whose heads are there."""
    asked = [(search, loss) for search in SEARCHES for loss in LOSSES]
    if not quick:
        asked += [("optimal", head) for head in WIDTHS if head in heads]
        asked += [(search_of(threshold), "talf") for threshold in THRESHOLDS]
    return list(dict.fromkeys(asked))


def measure(
    pair: Pair,
    asked: dict[Key, Method],
    prompts: list[tuple[str, list[int]]],
    tokens: int,
    repeats: int,
    counting: Counting = "loop_free",
) -> tuple[dict[Key, HeadMeasured], int]:
    """All ways on all prompts, beside decoding without a draft; prompts on which one has no figure are left out.

    Returns:
        What each reached, and how many outputs differ from that of decoding without a draft.
    """
    contestants = [Contestant(AUTOREGRESSIVE, METHODS[AUTOREGRESSIVE])]
    contestants += [Contestant(" ".join(key), method) for key, method in asked.items()]
    comparison = compare(pair, contestants, prompts, tokens, repeats)
    table: dict[tuple[int, int], list[RunMetrics | None]] = {}
    for result in comparison.results:
        table.setdefault((result.contestant, result.prompt), []).append(result.counted(counting))
    expected = [expectations(pair, asked, ids, seed, tokens) for seed, (_, ids) in enumerate(prompts)]
    numbers = range(len(contestants))
    whole = [p for p in range(len(prompts)) if expected[p] and all(all(table[c, p]) for c in numbers)]
    if not whole:
        raise PromptError("On every prompt some output loops from its beginning: give other --prompts.")
    plain = np.array([_throughput(table[0, p]) for p in whole])
    measured = {}
    for number, key in enumerate(asked, 1):
        runs = [table[number, p] for p in whole]
        first = [each[0] for each in runs]
        measured[key] = HeadMeasured(
            tokens=np.array([run.tokens_per_iteration for run in first]),
            expected=np.array([expected[p][key] for p in whole]),
            speed=np.array([_throughput(each) for each in runs]) / plain,
            forwards=np.array([run.draft_forwards / run.iterations for run in first]),
            nodes=np.array([run.verified / run.iterations for run in first]),
        )
    return measured, len(comparison.differences)


def expectations(pair: Pair, asked: dict[Key, Method], ids: list[int], seed: int, tokens: int) -> dict[Key, float]:
    """Expected tokens per pass of every way at temperature 1, exact on each tree, mean over roots of one prompt.

    The target writes the text after the prompt; roots where it loops are left out, and nothing is reported of a prompt
    without others.
    """
    positions = tuple(range(tokens // 6, tokens, tokens // 3))
    at = [root for root in roots(pair, ids, Sampling(temperature=1.0, seed=seed), positions) if not root.in_loop]
    if not at:
        return {}
    worth = {key: [root.tree(method).expected(("nss",))["nss"] for root in at] for key, method in asked.items()}
    return {key: float(np.mean(values)) for key, values in worth.items()}


def _throughput(repeats: list[RunMetrics]) -> float:
    return float(np.median([run.throughput for run in repeats]))


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    add_counting_argument(parser)
    parser.add_argument("--count", type=int, help="prompts (20; 3 with --quick)")
    parser.add_argument("--tokens", type=int, help="new tokens per prompt (48; 24 with --quick)")
    parser.add_argument("--repeats", type=int, default=1, help="measured calls of every way and prompt")
    parser.add_argument("--nodes", type=int, default=60, help="verified nodes of a tree (N); 60 in the paper")
    args = parser.parse_args()
    started = time.perf_counter()
    pair = pair_from(args)
    for head in LOSSES:
        find_head(head)
    asked = {key: method_of(*key, args.nodes) for key in ways(args.quick, {card.name for card in all_heads()})}
    tokens = args.tokens or (24 if args.quick else 48)
    prompts = encoded_prompts(pair, args.prompts, args.count or (3 if args.quick else 20))
    print(f"{pair.info.name}, {len(prompts)} held-out prompts x {tokens} tokens, greedy, N={args.nodes}; "
          f"{pair.target.info.device}, {pair.target.info.dtype}, {pair.target.info.engine} engine, "
          f"{COUNTINGS[args.counted]}; at T=1 roots outside loops")  # fmt: skip
    measured, differing = measure(pair, asked, prompts, tokens, args.repeats, args.counted)
    print(f"{differing} of {len(asked) * len(prompts)} outputs differ from decoding without a draft")
    claims = Claims()
    figures: dict = {"table_2": table_2(measured, claims)}
    if not args.quick:
        figures["table_3"] = table_3(measured, claims)
        by_threshold = {threshold: measured[search_of(threshold), "talf"] for threshold in THRESHOLDS}
        figures["table_4"] = table_4(by_threshold, claims)
    claims.show()
    figures["claims"] = [{**vars(claim), "found": vars(claim.found)} for claim in claims.made]
    figures |= {"counted": args.counted, "prompts": len(prompts), "tokens": tokens, "nodes": args.nodes,
                "differing_outputs": differing}  # fmt: skip
    figures["took_s"] = time.perf_counter() - started
    print(f"{figures['took_s']:.0f} s")
    save_figures(args, "talf", figures, pair.target.device)
    return 0


if __name__ == "__main__":
    run_main(main)
