"""The neural selector against the best static (K, L1, L2) and against traversal: Tables 4 to 7 in kind.

From stored selectors, on prompts that neither they nor their static rivals have seen. The text is written by the target
under the sampling that is judged; at each root super-trees are drawn, and the expected tokens of every action under
every verifier are exact on them: only texts, roots and trees are sampled. Modelled throughput divides block efficiency
by the time of Eq. 11 with passes priced by their rows as measured here and what real iterations of the verifier take
beside them; measured throughput decodes, all ways interleaved, at equal seeds. The best static action is that of the
sampling at the costs of this machine. How much there was to win tells the best action of each root: found by some trees
and judged by others drawn there, which no selector can beat by more than chance, and by the same trees, which is too
good. Text that repeats itself is left out. Means are over the samplings that the selectors have seen but greedy
decoding, intervals are those of the bootstrap over prompts; orderings are judged by paired ratios.

A widened target computes what the embedded one does, so roots are labelled with that.
"""

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from multiprocessing import get_context

import numpy as np
import torch

from benchmarks.talf import Claims
from decoding.common.errors import PromptError, SettingsError, run_main
from decoding.compare.comparison import Contestant, compare
from decoding.costs.latency import latency_model
from decoding.experiments.command import (
    add_counting_argument,
    add_pair_arguments,
    arguments,
    encoded_prompts,
    pair_from,
    print_table,
    save_figures,
)
from decoding.experiments.estimates import Estimate, estimate
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair, PairSettings, load_pair, pair_identity
from decoding.papers.delayed import SELECTOR
from decoding.papers.delayed import VERIFIERS as PAPER_VERIFIERS
from decoding.sampling.sampling import Sampling
from decoding.selector.actions import ACTIONS, DISTINCT, DISTINCT_OF, PLACES, LatencyModel, TimeModel
from decoding.selector.chooser import expected_tokens
from decoding.selector.features import Scaler
from decoding.selector.store import SelectorCard, all_selectors, find_selector, fits, load_network, require_fit
from decoding.session.session import unrecorded
from decoding.trace.metrics import Counting, RunMetrics
from decoding.training.selector_labels import VERIFIER_NAMES
from decoding.training.selector_learner import Examples, examples
from decoding.training.selector_roots import RootPlan, Roots, label_text, written
from decoding.verifiers import VERIFIERS

TREES, KHISTI_TREES = 6, 1  # drawn twice at each root: to find its best action by, and to judge by
# How a tree's shape is found, and what the tables call it.
WAYS = {
    "selector": "selector",
    "choice": "selector, the time it takes left out",
    "static": "best static",
    "static_most": "best static, most tokens",
    "root": "best (K, L) from the root",
    "root_most": "best (K, L) from the root, most tokens",
    "oracle": "best at each root, found by other trees",
    "same_trees": "best at each root, found by the same trees",
}
STATIC_FIELDS = {
    "static": "action",
    "static_most": "most_tokens",
    "root": "root_action",
    "root_most": "root_most_tokens",
}


@dataclass(frozen=True)
class SelectorTotals:
    """Sums over the roots of each prompt under each sampling, all `[samplings, prompts]`.

    Attributes:
        roots: counted; those in text that repeats itself are not.
        tokens, seconds: expected tokens and modelled time by verifier and way.
    """

    roots: np.ndarray
    tokens: Mapping[tuple[str, str], np.ndarray]
    seconds: Mapping[tuple[str, str], np.ndarray]

    def block_efficiency(self, key: tuple[str, str], prompts: np.ndarray) -> float:
        """Tokens per pass over some prompts, mean over samplings."""
        return float(np.mean(self.tokens[key][:, prompts].sum(1) / self.roots[:, prompts].sum(1)))

    def rate(self, key: tuple[str, str], prompts: np.ndarray) -> float:
        """Modelled tokens per second over some prompts, mean over samplings."""
        return float(np.mean(self.tokens[key][:, prompts].sum(1) / self.seconds[key][:, prompts].sum(1)))


Twice = tuple[Roots, Roots]  # the same roots with labels over different trees


@lru_cache(maxsize=1)
def _pair(settings: PairSettings) -> Pair:
    torch.set_num_threads(1)
    pair = load_pair(settings)
    return pair.with_engine("transformers") if pair.target.info.engine == "cuda_graph" else pair


def _roots(job: tuple[PairSettings, RootPlan, list[int], int]) -> Twice:
    """The labelled roots behind one prompt under one sampling, twice: with trees to find by, and with others."""
    settings, plan, prompt, number = job
    pair = _pair(settings)
    with torch.inference_mode():
        tokens = written(pair, prompt, plan, 0)
        find, judge = (label_text(pair, tokens, len(prompt), plan, 0, 1000 * number + seed) for seed in (7, 500_007))
    return find, judge


def labelled_roots(
    settings: PairSettings,
    prompts: Sequence[list[int]],
    samplings: Sequence[Sampling],
    roots: int,
    verifiers: Sequence[str],
    processes: int | None = None,
) -> list[list[Twice]]:
    """Roots behind every prompt under every sampling, `[samplings][prompts]`."""
    plans = [
        RootPlan(
            roots=roots, trees=TREES, khisti_trees=KHISTI_TREES, khisti_every=1, samplings=(each,), per_root=1,
            verifiers=tuple(verifiers), seed=7,
        )
        for each in samplings
    ]  # fmt: skip
    settings = replace(settings, widen=1)
    jobs = [(settings, plan, prompt, number) for plan in plans for number, prompt in enumerate(prompts)]
    with ProcessPoolExecutor(processes or os.cpu_count(), get_context("spawn")) as workers:
        found = list(workers.map(_roots, jobs))
    return [found[start : start + len(prompts)] for start in range(0, len(found), len(prompts))]


def totals_of(
    found: list[list[Twice]],
    cards: Mapping[str, SelectorCard],
    samplings: Sequence[Sampling],
    latencies: Mapping[str, LatencyModel],
    way: TimeModel,
) -> SelectorTotals:
    """What every way comes to on labelled roots, for each of some selectors and the costs of each verifier."""
    shape = (len(found), len(found[0]))
    roots = np.zeros(shape)
    keys = [(name, how) for name in cards for how in WAYS]
    tokens, seconds = ({key: np.zeros(shape) for key in keys} for _ in range(2))
    networks = {name: load_network(card) for name, card in cards.items()}
    for row, (sampling, texts) in enumerate(zip(samplings, found, strict=True)):
        for column, twice in enumerate(texts):
            roots[row, column] = (~twice[1].in_loop).sum()
            if not roots[row, column]:
                continue
            for name, card in cards.items():
                finding, judging = (
                    examples(each, name, (sampling,), latencies[name], way, card.scalars) for each in twice
                )
                for how in WAYS:
                    counted = _worth(finding, judging, how, card, sampling, networks[name])
                    tokens[name, how][row, column], seconds[name, how][row, column] = counted
    return SelectorTotals(roots, tokens, seconds)


@torch.inference_mode()
def _worth(
    finding: Examples, judging: Examples, how: str, card: SelectorCard, sampling: Sampling, network
) -> tuple[float, float]:
    """Expected tokens and modelled seconds at the roots of a text, summed."""
    taken = judging.seconds if how in ("selector",) else judging.static_s
    if how in ("selector", "choice"):
        scalars = Scaler(card.mean, card.spread).scaled(judging.features.scalars.double().numpy())
        outputs = network(judging.features._replace(scalars=torch.from_numpy(scalars).float()))
        if card.rule == "tokens":
            chosen = (torch.from_numpy(expected_tokens(outputs.double().numpy())) / judging.seconds).argmax(-1)
        else:
            chosen = outputs.argmax(-1)
            chosen = chosen if outputs.shape[-1] == len(DISTINCT) else torch.from_numpy(DISTINCT_OF)[chosen]
    elif how in STATIC_FIELDS:
        static = card.static(sampling.temperature, sampling.top_p, sampling.draft_temperature)
        static = static.here(judging.static_s.double().mean(0).numpy())
        place = DISTINCT_OF[ACTIONS.index(getattr(static, STATIC_FIELDS[how]))]
        chosen = torch.full((len(judging),), int(place))
    else:
        by = finding if how == "oracle" else judging
        chosen = (by.expected / by.static_s).argmax(-1)
    place = chosen[:, None]
    return float(judging.expected.gather(1, place).sum()), float(taken.gather(1, place).sum())


# Averages of the paper: Table 4 and 5 (ratios over the baseline), Table 6 and 7 (tokens per pass, tokens per second).
PAPER_RATIOS = {
    "khisti": (1.19, 1.16), "naive_tree": (1.09, 1.30), "nss": (1.11, 1.26), "specinfer": (1.10, 1.23),
    "spectr": (1.10, 1.23),
}  # fmt: skip
PAPER_LEVELS = {**SELECTOR, "traversal": PAPER_VERIFIERS["traversal"][1:]}
DRAWS = 1000
ALONE = "modelled, its own time left out"
OT = tuple(PAPER_RATIOS)
Key = tuple[str, str]


@dataclass(frozen=True)
class SelectorFigures:
    """One figure of every verifier and way, as a function of the prompts that it is taken over.

    Attributes:
        words: what it is. of: `(key, prompts) -> value`. keys: that there are. prompts: how many.
    """

    words: str
    of: object
    keys: tuple[Key, ...]
    prompts: int

    def level(self, key: Key) -> Estimate:
        """The figure with its interval."""
        return estimate(range(self.prompts), partial(self.of, key), DRAWS)

    def gain(self, better: Key, worse: Key) -> Estimate:
        """By how much, as a share, one exceeds the other on the same prompts."""
        return estimate(range(self.prompts), lambda rows: self.of(better, rows) / self.of(worse, rows) - 1, DRAWS)


def exact_figures(totals: SelectorTotals) -> tuple[SelectorFigures, SelectorFigures]:
    """Block efficiency, exact over the verifier, and modelled throughput."""
    keys, prompts = tuple(totals.tokens), totals.roots.shape[1]
    return (
        SelectorFigures("tokens per pass, exact over the verifier", totals.block_efficiency, keys, prompts),
        SelectorFigures("modelled tokens per second", totals.rate, keys, prompts),
    )


def measured_figures(speeds: dict[Key, np.ndarray]) -> SelectorFigures:
    """Measured throughput from tokens per second `[samplings, prompts]`: geometric means over both."""
    logs = {key: np.log(values) for key, values in speeds.items()}
    count = next(iter(speeds.values())).shape[1]

    def of(key: Key, prompts: np.ndarray) -> float:
        return float(np.exp(logs[key][:, prompts].mean()))

    return SelectorFigures("measured tokens per second", of, tuple(speeds), count)


def ratio_table(figures: Sequence[SelectorFigures], base: str, claims: Claims) -> dict:
    """Tables 4 and 5: how much the selector adds to each verifier."""
    print(f"\nTables 4 and 5: the selector over {WAYS[base]}, as a ratio (Traversal is ours: the paper has none)")
    names = [name for name, how in figures[0].keys if how == "selector"]
    rows, found = [], {}
    for name in names:
        cells = []
        for each in figures:
            worse = (name, f"{base}_most" if each is figures[0] else base)
            if worse not in each.keys or (name, "selector") not in each.keys:
                cells.append("-")
                continue
            gain = each.gain((name, "selector"), worse)
            cells.append(_ratio(gain))
            found[f"{name}: {each.words}"] = vars(gain)
            if name in PAPER_RATIOS:
                paper = PAPER_RATIOS[name][0 if each is figures[0] else 1] - 1
                words = f"{VERIFIERS[name].label}: selector over {WAYS[worse[1]]}, {each.words}"
                claims.add(words, f"{paper:+.2f}", gain)
        paper_cells = [f"{value:.2f}" for value in PAPER_RATIOS.get(name, ())] or ["-", "-"]
        alone = figures[1].gain((name, "choice"), (name, base))
        found[f"{name}: {ALONE}"] = vars(alone)
        rows.append((VERIFIERS[name].label, cells[0], paper_cells[0], *cells[1:], paper_cells[1], _ratio(alone)))
    print_table(("verifier", figures[0].words, "paper", *(each.words for each in figures[1:]), "paper", ALONE), rows)
    return found


def _ratio(gain: Estimate) -> str:
    return f"{1 + gain.value:.3f} ({1 + gain.low:.3f} to {1 + gain.high:.3f})"


def level_table(figures: Sequence[SelectorFigures], claims: Claims) -> dict:
    """Tables 6 and 7: the OT verifiers with the selector against traversal."""
    print("\nTables 6 and 7: every verifier with every way to shape the tree")
    rows, found = [], {}
    for key in figures[0].keys:
        name, how = key
        cells = [str(each.level(key)) if key in each.keys else "-" for each in figures]
        paper = PAPER_LEVELS.get(name) if how == ("root" if name == "traversal" else "selector") else None
        rows.append((f"{VERIFIERS[name].label}, {WAYS[how]}", cells[0], f"{paper[0]:.2f}" if paper else "",
                     *cells[1:], f"{paper[1]:.2f}" if paper else ""))  # fmt: skip
        found[f"{name}, {how}"] = {e.words: vars(e.level(key)) for e in figures if key in e.keys}
    print_table(("way", figures[0].words, "paper", *(each.words for each in figures[1:]), "paper"), rows)
    for place, each in enumerate(figures):
        base = ("traversal", "root_most" if place == 0 else "root")
        if base not in each.keys:
            base = ("traversal", "static")
        for name in OT:
            if (name, "selector") not in each.keys or base not in each.keys:
                continue
            column = min(place, 1)
            apart = PAPER_LEVELS[name][column] / PAPER_LEVELS["traversal"][column] - 1
            pair = ((name, "selector"), base)
            better, worse = pair if apart > 0 else pair[::-1]
            words = " over ".join(f"{VERIFIERS[n].label}, {WAYS[how]}" for n, how in (better, worse))
            paper = apart if apart > 0 else 1 / (1 + apart) - 1
            claims.add(f"{words}, {each.words}", f"{paper:+.2f}", each.gain(better, worse))
    return found


def possible_table(figures: Sequence[SelectorFigures]) -> dict:
    """How much of what there is to win over the best static action a selector wins."""
    print("\nOver the best static action, as a ratio")
    modelled, measured = figures[1], figures[-1]
    rows, found = [], {}
    for name in [name for name, how in modelled.keys if how == "selector"]:
        gains = {
            how: modelled.gain((name, how), (name, "static")) for how in ("selector", "choice", "oracle", "same_trees")
        }
        if (name, "selector") in measured.keys:
            gains["measured"] = measured.gain((name, "selector"), (name, "static"))
        found[name] = {how: vars(gain) for how, gain in gains.items()}
        rows.append((VERIFIERS[name].label, *(_ratio(gain) for gain in gains.values())))
    heads = (
        "selector, modelled",
        "its own time left out",
        "best at each root, by other trees",
        "by the same trees",
        "selector, measured",
    )
    print_table(("verifier", *heads[: len(rows[0]) - 1]), rows)
    return found


QUICK = ("specinfer", "traversal")
MEASURED_AT = (0.6, 1.0)  # temperatures at which ways are decoded for real
MEASURED_WAYS = ("selector", "static")


def stored(pair: Pair, names: list[str] | None, quick: bool) -> dict[str, SelectorCard]:
    """The selectors to judge, by verifier: those named, else the first that fits the pair for each.

    Raises:
        SettingsError: none fits, or one is not there. PairError: one named is of another pair.
    """
    identity = pair_identity(pair)
    if names:
        cards = [find_selector(name) for name in names]
        for card in cards:
            require_fit(card, identity)
    else:
        fitting = {card.verifier: card for card in reversed(all_selectors()) if fits(card, identity)}
        cards = [fitting[verifier] for verifier in (QUICK if quick else VERIFIER_NAMES) if verifier in fitting]
    if not cards:
        raise SettingsError(
            f"No selector is stored for {pair.info.name}: train them with python -m decoding.training.selector "
            "--verifier all."
        )
    return {card.verifier: card for card in cards}  # a verifier named twice is judged by the last


def samplings_of(cards: dict[str, SelectorCard], quick: bool) -> list[Sampling]:
    """The samplings that the selectors have seen, greedy decoding left out: all verifiers are equal there."""
    statics = next(iter(cards.values())).statics
    seen = [Sampling(s.temperature, s.top_p, s.draft_temperature) for s in statics if s.temperature > 0]
    seen = [each for each in seen if each.draft_temperature == 1]
    return [each for each in seen if each.temperature in MEASURED_AT and each.top_p == 1] if quick else seen


def measured_speeds(
    pair: Pair,
    cards: dict[str, SelectorCard],
    latencies: Mapping[str, LatencyModel],
    samplings: list[Sampling],
    prompts: list,
    tokens: int,
    repeats: int,
    counting: Counting = "loop_free",
) -> dict[tuple[str, str], np.ndarray]:
    """Tokens per second without prefill, `[samplings, prompts]` by verifier and way; best of the repeats.

    Prompts on which some way has no figure are left out.
    """
    keys = [(name, how) for name in cards for how in MEASURED_WAYS] + [("autoregressive", "")]
    table: dict[tuple, list[RunMetrics | None]] = {}
    for row, sampling in enumerate(samplings):
        contestants = []
        for name, how in keys:
            method = METHODS["autoregressive"].with_settings(verifier="nss")
            if how:
                card = cards[name]
                static = card.static(sampling.temperature, sampling.top_p, sampling.draft_temperature)
                middle = np.array([np.mean([len(ids) for _, ids in prompts]) + tokens / 2])
                action = static.here(latencies[name].action_s(middle, card.way)[0][PLACES]).action
                shape = {"selector": card.name} if how == "selector" else action._asdict()
                method = METHODS["delayed"].with_settings(verifier=name, **shape)
            contestants.append(Contestant(f"{name} {how}", method))
        for result in compare(pair, contestants, prompts, tokens, repeats, sampling=sampling).results:
            table.setdefault((keys[result.contestant], row, result.prompt), []).append(result.counted(counting))
    rows, columns = range(len(samplings)), range(len(prompts))
    whole = [p for p in columns if all(all(table[key, row, p]) for key in keys for row in rows)]
    if not whole:
        raise PromptError("On every prompt some output loops from its beginning: give other --prompts.")
    return {
        key: np.array([[max(run.decode_throughput for run in table[key, row, p]) for p in whole] for row in rows])
        for key in keys
    }


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    add_counting_argument(parser)
    parser.add_argument("--selectors", nargs="+", metavar="NAME", help="stored selectors; default: those that fit")
    parser.add_argument("--count", type=int, help="prompts (12; 3 with --quick)")
    parser.add_argument("--roots", type=int, help="roots of each prompt and sampling (3; 1 with --quick)")
    parser.add_argument("--tokens", type=int, help="new tokens where ways are decoded for real (48; 16 with --quick)")
    parser.add_argument("--repeats", type=int, default=1, help="measured calls of every way and prompt")
    args = parser.parse_args()
    started = time.perf_counter()
    pair = pair_from(args)
    cards = stored(pair, args.selectors, args.quick)
    samplings = samplings_of(cards, args.quick)
    prompts = encoded_prompts(pair, args.prompts, args.count or (3 if args.quick else 12))
    roots, tokens = args.roots or (1 if args.quick else 3), args.tokens or (16 if args.quick else 48)
    latencies = {name: latency_model(pair, unrecorded, name) for name in cards}
    latency = next(iter(latencies.values()))
    way = next(iter(cards.values())).way

    real = [each for each in samplings if each.temperature in MEASURED_AT and each.top_p == 1]
    speeds = measured_speeds(
        pair, cards, latencies, real, prompts, tokens, args.repeats, args.counted
    )  # first: nothing else runs meanwhile
    found = labelled_roots(pair.settings, [ids for _, ids in prompts], samplings, roots, tuple(cards))
    totals = totals_of(found, cards, samplings, latencies, way)
    count = totals.roots.sum()
    print(f"{pair.info.name}, {len(prompts)} held-out prompts, {len(samplings)} samplings, {count:.0f} roots "
          f"outside loops, {TREES} trees each (1 for Khisti); times: {way}, {latency.costs.machine}")  # fmt: skip
    for name, card in cards.items():
        print(f"{name}: {card.name}, {card.figures.get('roots', 0):.0f} training roots, {card.created}")
    claims, plain = Claims(), speeds.pop(("autoregressive", ""))
    figures = [*exact_figures(totals), measured_figures(speeds)]
    tables = {f"over_{base}": ratio_table(figures, base, claims) for base in ("root", "static")}
    tables["levels"] = level_table(figures, claims)
    tables["possible"] = possible_table(figures)
    print(f"decoding without a draft: {np.exp(np.log(plain).mean()):.1f} tokens/s measured; "
          f"choosing an action: {1000 * latency.selector_s:.2f} ms")  # fmt: skip
    claims.show()
    record = {
        **tables,
        "claims": [{**vars(claim), "found": vars(claim.found)} for claim in claims.made],
        "prompts": len(prompts), "roots": float(count), "samplings": [vars(each) for each in samplings],
        "measured_at": [vars(each) for each in real], "tokens": tokens, "ways": WAYS, "time": way,
        "autoregressive": float(np.exp(np.log(plain).mean())),
        "latency": {name: each.as_json() for name, each in latencies.items()},
        "selectors": {card.verifier: {"name": card.name, "created": card.created, **card.figures}
                      for card in cards.values()},
    }  # fmt: skip
    print(f"{time.perf_counter() - started:.0f} s")
    save_figures(args, "selector", record, pair.target.device)
    return 0


if __name__ == "__main__":
    run_main(main)
