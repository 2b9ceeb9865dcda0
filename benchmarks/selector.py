"""The neural selector against the best static (K, L1, L2) and against traversal: Tables 4 to 7 in kind.

From stored selectors, on prompts that neither they nor their static rivals have seen. Block efficiency is exact over
the verifier at roots along the target's own text; modelled throughput divides it by the time of Eq. 11 with passes
priced by their rows as measured here; measured throughput decodes, all ways interleaved, at equal seeds. Text that
repeats itself is left out. Means are over the samplings that the selectors have seen but greedy decoding, intervals are
those of the bootstrap over prompts; orderings are judged by paired ratios.
"""

import time

import numpy as np

from benchmarks.selector_roots import TREES, WAYS, labelled_roots, totals_of
from benchmarks.selector_tables import exact_figures, level_table, measured_figures, ratio_table
from benchmarks.talf_tables import Claims
from decoding.common.errors import PromptError, SettingsError, run_main
from decoding.compare.comparison import Contestant, compare
from decoding.costs.measuring import latency_model
from decoding.experiments.command import add_pair_arguments, arguments, choose_prompts, encode, pair_from, save_figures
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair, pair_identity
from decoding.sampling.sampling import Sampling
from decoding.selector.store import SelectorCard, find_selector, require_fit, selectors_for
from decoding.session.session import unrecorded
from decoding.trace.metrics import RunMetrics
from decoding.training.selector_labels import VERIFIER_NAMES

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
        fitting = [selectors_for(identity, verifier)[:1] for verifier in (QUICK if quick else VERIFIER_NAMES)]
        cards = [card for some in fitting for card in some]
    if not cards:
        raise SettingsError(
            f"No selector is stored for {pair.info.name}: train them with python -m decoding.training.selector "
            "--verifier all."
        )
    return {card.verifier: card for card in cards}


def samplings_of(cards: dict[str, SelectorCard], quick: bool) -> list[Sampling]:
    """The samplings that the selectors have seen, greedy decoding left out: all verifiers are equal there."""
    statics = next(iter(cards.values())).statics
    seen = [Sampling(s.temperature, s.top_p, s.draft_temperature) for s in statics if s.temperature > 0]
    return [each for each in seen if each.temperature in MEASURED_AT and each.top_p == 1] if quick else seen


def measured_speeds(
    pair: Pair, cards: dict[str, SelectorCard], samplings: list[Sampling], prompts: list, tokens: int, repeats: int
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
                action = card.static(sampling.temperature, sampling.top_p).action
                shape = {"selector": card.name} if how == "selector" else action._asdict()
                method = METHODS["delayed"].with_settings(verifier=name, **shape)
            contestants.append(Contestant(f"{name} {how}", method))
        for result in compare(pair, contestants, prompts, tokens, repeats, sampling=sampling).results:
            table.setdefault((keys[result.contestant], row, result.prompt), []).append(result.loop_free)
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
    chosen = choose_prompts(args.prompts, args.count or (3 if args.quick else 12))
    if not chosen:
        raise PromptError("No prompts to measure on: give --prompts a folder with .txt files.")
    prompts = [(f"{prompt.kind}/{prompt.name}", encode(pair, prompt.text)) for prompt in chosen]
    roots, tokens = args.roots or (1 if args.quick else 3), args.tokens or (16 if args.quick else 48)
    latency = latency_model(pair, unrecorded)
    way = next(iter(cards.values())).way

    real = [each for each in samplings if each.temperature in MEASURED_AT and each.top_p == 1]
    speeds = measured_speeds(pair, cards, real, prompts, tokens, args.repeats)  # first: nothing else runs meanwhile
    found = labelled_roots(pair.settings, [ids for _, ids in prompts], samplings, roots, tuple(cards))
    totals = totals_of(found, cards, samplings, latency, way)
    count = totals.roots.sum()
    print(f"{pair.info.name}, {len(prompts)} held-out prompts, {len(samplings)} samplings, {count:.0f} roots "
          f"outside loops, {TREES} trees each (1 for Khisti); times: {way}, {latency.costs.machine}")  # fmt: skip
    for name, card in cards.items():
        print(f"{name}: {card.name}, {card.figures.get('roots', 0):.0f} training roots, {card.created}")
    claims, plain = Claims(), speeds.pop(("autoregressive", ""))
    figures = [*exact_figures(totals), measured_figures(speeds)]
    tables = {f"over_{base}": ratio_table(figures, base, claims) for base in ("root", "static")}
    tables["levels"] = level_table(figures, claims)
    print(f"decoding without a draft: {np.exp(np.log(plain).mean()):.1f} tokens/s measured; "
          f"choosing an action: {1000 * latency.selector_s:.2f} ms")  # fmt: skip
    claims.show()
    record = {
        **tables,
        "claims": [{**vars(claim), "found": vars(claim.found)} for claim in claims.made],
        "prompts": len(prompts), "roots": float(count), "samplings": [vars(each) for each in samplings],
        "measured_at": [vars(each) for each in real], "tokens": tokens, "ways": WAYS, "time": way,
        "autoregressive": float(np.exp(np.log(plain).mean())), "latency": latency.as_json(),
        "selectors": {card.verifier: {"name": card.name, "created": card.created, **card.figures}
                      for card in cards.values()},
    }  # fmt: skip
    print(f"{time.perf_counter() - started:.0f} s")
    save_figures(args, "selector", record, pair.target.device)
    return 0


if __name__ == "__main__":
    run_main(main)
