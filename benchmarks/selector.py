"""The neural selector against the best static (K, L1, L2) and against traversal: Tables 4 to 7 in kind.

From stored selectors, on prompts that neither they nor their static rivals have seen, as far as their cards say what
they were trained on: those of the samples are refused on the samples. The text is written by the target
under the sampling that is judged; at each root super-trees are drawn, and the expected tokens of every action under
every verifier are exact on them: only texts, roots and trees are sampled. Modelled throughput divides block efficiency
by the time of Eq. 11 with passes priced by their rows as measured here and what real iterations of the verifier take
beside them; measured throughput decodes, all ways interleaved, at equal seeds. The best static action is that of the
sampling at the costs of this machine. How much there was to win tells the best action of each root: found by some trees
and judged by others drawn there, which is too little where few trees tell, and by the same trees, which is too good.
Roots in loops are left out, as no selector learns from them; what is decoded counts as `--counted` says. Means are over
the samplings that the selectors have seen but greedy decoding and warm drafts, intervals are those of the bootstrap
over prompts; orderings are judged by paired ratios.

A widened target computes what the embedded one does, so roots are labelled with that.
"""

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from benchmarks.selector_tables import (
    WAYS,
    SelectorTotals,
    exact_figures,
    level_table,
    measured_figures,
    possible_table,
    ratio_table,
    selector_goal,
)
from benchmarks.talf import Claims
from decoding.common.errors import PromptError, SettingsError, run_main
from decoding.compare.comparison import compare
from decoding.compare.contestants import Contestant
from decoding.costs.latency import latency_model
from decoding.experiments.command import add_counting_argument, arguments, encoded_prompts, pair_from, save_figures
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair, PairSettings, load_pair, pair_identity
from decoding.models.presets import add_pair_arguments
from decoding.sampling.sampling import Sampling
from decoding.selector.actions import ACTIONS, DISTINCT, DISTINCT_OF, PLACES, LatencyModel, TimeModel
from decoding.selector.chooser import expected_tokens, mean_logs
from decoding.selector.features import Scaler
from decoding.selector.store import SelectorCard, all_selectors, find_selector, fits, load_network, require_fit
from decoding.session.session import unrecorded
from decoding.trace.metrics import COUNTINGS, Counting, RunMetrics
from decoding.training.selector_labels import VERIFIER_NAMES
from decoding.training.selector_learner import Examples, examples
from decoding.training.selector_roots import RootPlan, Roots, label_text, written
from decoding.training.text import sample_texts

STATIC_FIELDS = {
    "static": "action",
    "static_most": "most_tokens",
    "root": "root_action",
    "root_most": "root_most_tokens",
}


Twice = tuple[Roots, Roots]  # the same roots with labels over different trees


@lru_cache(maxsize=1)
def _pair(settings: PairSettings) -> Pair:
    torch.set_num_threads(1)
    pair = load_pair(settings)
    return pair.with_engine("transformers") if pair.target.info.engine == "cuda_graph" else pair


def _roots(job: tuple[PairSettings, RootPlan, list[int], int]) -> Twice:
    """The labelled roots after one prompt under one sampling, twice: with trees to find by, and with others."""
    settings, plan, prompt, number = job
    pair = _pair(settings)
    with torch.inference_mode():
        tokens = written(pair, prompt, plan, 0, plan.seed)
        find, judge = (label_text(pair, tokens, len(prompt), plan, 0, 1000 * number + seed) for seed in (7, 500_007))
    return find, judge


def khisti_trees(trees: int) -> int:
    """Of so many trees at a root those labelled for Khisti, whose programs take longer than all others: one in six."""
    return -(-trees // 6)


def labelled_roots(
    settings: PairSettings,
    prompts: Sequence[list[int]],
    samplings: Sequence[Sampling],
    roots: int,
    verifiers: Sequence[str],
    trees: int,
) -> list[list[Twice]]:
    """Roots after every prompt under every sampling, `[samplings][prompts]`.

    `trees` are drawn twice at each: to find its best action by, and to judge by.
    """
    plans = [
        RootPlan(
            roots=roots, trees=trees, khisti_trees=khisti_trees(trees), khisti_every=1, samplings=(each,), per_root=1,
            verifiers=tuple(verifiers), seed=7,
        )
        for each in samplings
    ]  # fmt: skip
    settings = replace(settings, widen=1)
    jobs = [(settings, plan, prompt, number) for plan in plans for number, prompt in enumerate(prompts)]
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as workers:
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
    taken = judging.seconds if how == "selector" else judging.static_s
    if how in ("selector", "choice"):
        scalars = Scaler(card.mean, card.spread).scaled(judging.features.scalars.double().numpy())
        outputs = network(judging.features._replace(scalars=torch.from_numpy(scalars).float()))
        if card.rule == "tokens":
            means = np.array(card.static(sampling.temperature, sampling.top_p, sampling.draft_temperature).tokens)
            tokens = expected_tokens(outputs.double().numpy() + mean_logs(means))
            chosen = (torch.from_numpy(tokens) / judging.seconds).argmax(-1)
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


def prompt_words(cards: Mapping[str, SelectorCard], prompts: Path | None) -> str:
    """What prompts are to selectors: held out only where every card says what it was trained on.

    Raises:
        SettingsError: one was trained on the sample prompts, and they are asked for.
    """
    texts = {card.name: card.data.get("text") for card in cards.values()}
    on_samples = [name for name, text in texts.items() if text == sample_texts().identity]
    if prompts is None and on_samples:
        raise SettingsError(f"{', '.join(on_samples)} learnt from the sample prompts: give others with --prompts DIR.")
    return "held-out prompts" if all(texts.values()) else "prompts that may have been trained on"


def samplings_of(cards: dict[str, SelectorCard], quick: bool) -> list[Sampling]:
    """The samplings that the selectors have seen, but greedy decoding, where all verifiers are equal, and those with
    another temperature of the draft, which the paper's tables do not have.
    """
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
    parser.add_argument("--trees", type=int, help="drawn at each root, twice (12; 2 with --quick)")
    parser.add_argument("--tokens", type=int, help="new tokens where ways are decoded for real (48; 16 with --quick)")
    parser.add_argument("--repeats", type=int, default=1, help="measured calls of every way and prompt")
    args = parser.parse_args()
    started = time.perf_counter()
    pair = pair_from(args)
    cards = stored(pair, args.selectors, args.quick)
    held_out = prompt_words(cards, args.prompts)
    samplings = samplings_of(cards, args.quick)
    prompts = encoded_prompts(pair, args.prompts, args.count or (3 if args.quick else 12))
    roots, tokens = args.roots or (1 if args.quick else 3), args.tokens or (16 if args.quick else 48)
    trees = args.trees or (2 if args.quick else 12)
    latencies = {name: latency_model(pair, unrecorded, name) for name in cards}
    latency = next(iter(latencies.values()))
    way = next(iter(cards.values())).way

    real = [each for each in samplings if each.temperature in MEASURED_AT and each.top_p == 1]
    speeds = measured_speeds(
        pair, cards, latencies, real, prompts, tokens, args.repeats, args.counted
    )  # first: nothing else runs meanwhile
    found = labelled_roots(pair.settings, [ids for _, ids in prompts], samplings, roots, tuple(cards), trees)
    totals = totals_of(found, cards, samplings, latencies, way)
    count = totals.roots.sum()
    print(f"{pair.info.name}, {len(prompts)} {held_out}, {len(samplings)} samplings, {count:.0f} roots "
          f"outside loops, {trees} trees each ({khisti_trees(trees)} for Khisti); times: {way}, "
          f"{latency.costs.machine}")  # fmt: skip
    for name, card in cards.items():
        print(f"{name}: {card.name}, {card.figures.get('examples', 0):.0f} training examples, {card.created}")
    claims, plain = Claims(), speeds.pop(("autoregressive", ""))
    figures = [*exact_figures(totals), measured_figures(speeds)]
    tables = {f"over_{base}": ratio_table(figures, base, claims) for base in ("root", "static")}
    tables["levels"] = level_table(figures, claims)
    tables["possible"] = possible_table(figures)
    print(f"decoding without a draft: {np.exp(np.log(plain).mean()):.1f} tokens/s measured, {COUNTINGS[args.counted]}; "
          f"choosing an action: {1000 * latency.selector_s:.2f} ms")  # fmt: skip
    claims.show()
    print(f"\n{selector_goal(tables['possible'])}\n")
    record = {
        **tables,
        "claims": [{**vars(claim), "found": vars(claim.found)} for claim in claims.made],
        "prompts": len(prompts), "prompts_are": held_out, "roots": float(count), "trees": trees,
        "samplings": [vars(each) for each in samplings],
        "measured_at": [vars(each) for each in real], "tokens": tokens, "ways": WAYS, "time": way,
        "counted": args.counted, "autoregressive": float(np.exp(np.log(plain).mean())),
        "latency": {name: each.as_json() for name, each in latencies.items()},
        "selectors": {card.verifier: {"name": card.name, "created": card.created, **card.figures}
                      for card in cards.values()},
    }  # fmt: skip
    record["pair"], record["took_s"] = pair.info.name, time.perf_counter() - started
    print(f"{record['took_s']:.0f} s")
    save_figures(args, "selector", record, pair.target.device)
    return 0


if __name__ == "__main__":
    run_main(main)
