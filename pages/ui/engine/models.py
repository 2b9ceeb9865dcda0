"""What a modelled answer is asked of: whose acceptance, which models on what, at which batch and K."""

from dataclasses import dataclass, replace
from typing import Literal

import streamlit as st

from decoding.analysis.batch import MOST_DEPTH, Rates, engine_acceptance, run_acceptance, typed_acceptance
from decoding.analysis.known_models import KNOWN_MODELS, known_name, known_shape
from decoding.analysis.model_shape import EAGLE3_VOCABULARY, ModelShape, eagle_head, read_draft, read_shape
from decoding.analysis.roofline import (
    ACCELERATORS,
    CACHES,
    MOST_BATCH,
    MOST_CONTEXT,
    MOST_DEVICES,
    WEIGHTS,
    Accelerator,
    Efficiency,
    Setup,
)
from decoding.common.errors import SettingsError
from decoding.common.formats import listed
from decoding.recorded import recorded_run
from decoding.trace.engine_metrics import EngineMetrics
from decoding.trace.records import RunTrace
from pages.ui.common.errors import escape_markdown
from pages.ui.common.state import current_run

OWN_CONFIG, OWN_CHIP = "your own config.json", "your own numbers"
EAGLE, EAGLE3 = "EAGLE head on the target", "EAGLE-3 head on the target"
HEADS = {EAGLE: None, EAGLE3: EAGLE3_VOCABULARY}
LOOKUP = "lookup in the text (n-gram, free)"
TARGET, DRAFT, CHIP = "Llama-3.1-8B", EAGLE, "h100-sxm"  # of the example
TREES = "tree_helps"
FIGURES, ON_SCREEN, TYPED = "the figures imported here", "the run in Step through", "typed"
RECORDED = "a recorded run"
USUAL_K, USUAL_BATCH = 3, (8, 32)
CONFIG_BYTES_MB = 1
MOST_ENGINE_MS = 900.0
ENGINE_MS, TAKEN = "batch_engine_ms", "engine_ms_taken"  # what a round costs, and whether a button has just set it
RAN = "engine_ran"  # the record of a log, and the pair that it was said to be of
RAN_HERE = "engine_ran_here"  # the same of the pair in memory
Given = Literal["example", "own", "unread"]
TARGET_HELP = "Choose one, or type its repository, such as meta-llama/Llama-3.3-70B-Instruct."
CONFIG_HELP = (
    "The text of the model's config.json on Hugging Face. No weights are needed, and nothing leaves this machine."
)
TP_ASSUMED = (
    "Tensor parallel is assumed to be 1: set yours, or paste the line of your log that has `tensor_parallel_size` "
    "(vLLM) or `tp_size` (SGLang), too."
)
WEIGHTS_HELP = (
    "fp8 also computes in 8 bits where the accelerator can; int8 and int4 are unpacked to 16 bits. The output head "
    "stays in 16 bits."
)
ENGINE_HELP = (
    "What the engine itself adds to a round of drafting and verifying: scheduling, sampling, preparing inputs. What "
    "published gains leave beside the model's passes: 0.75 ms of vLLM in 2025 at a batch of one, 2 to 8 ms of SGLang "
    "0.4.4 with EAGLE-3 and larger batches (its paper, table 3)."
)
BY_DEPTH = (
    "How often the draft's first choice is accepted at each depth, of the times that all before it are. vLLM logs "
    "marginal rates instead: paste its line on the left, or divide each rate by the one before."
)
BY_RANK = (
    "How often the draft's first, second, third choice is the one accepted, over all depths; they add up to at most 1. "
    "Empty: chains only. vLLM verifies chains and does not count this: a run of your pair in Step through, with a "
    "method that drafts trees, has it."
)


@dataclass(frozen=True)
class Chosen:
    """Rates, whose they are in words, why not to act on them and what is odd in them, a sentence each.

    Attributes:
        length: the K that an engine ran with; None where the rates are of no engine.
        run: whose they are; None where they are of no run.
    """

    rates: Rates
    whose: str
    wrong: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()
    imported: bool = False
    length: int | None = None
    run: RunTrace | None = None


def ask_acceptance(metrics: EngineMetrics | None, given: Given) -> Chosen | None:
    """The rates chosen; None where they are still to be chosen, which is said.

    Raises:
        SettingsError: they are no rates, or the engine does not tell them.
    """
    run = current_run()
    there = {FIGURES: metrics is not None, ON_SCREEN: run is not None, RECORDED: True, TYPED: True}
    offered = [name for name in there if there[name]]
    if given == "example":  # its profile has no ranks, and so no trees
        offered.sort(key=lambda name: name != RECORDED)
    chosen = st.segmented_control(
        "Acceptance of", offered, default=None if given == "unread" else offered[0], required=given != "unread",
        key=f"batch_acceptance_{given}_{'_'.join(offered)}",
    )  # fmt: skip
    if chosen is None:
        st.info("What you pasted could not be read, so there is no verdict: mend it, or choose other rates here.")
        return None
    if chosen == FIGURES and metrics is not None:
        return _imported(metrics)
    if chosen == ON_SCREEN and run is not None:
        return Chosen(run_acceptance(run.trace), f"of {run.trace.pair.name}, {run.trace.label}", run=run.trace)
    if chosen == TYPED:
        left, right = st.columns(2)
        depths = left.text_input(
            "By depth, conditional", key="batch_typed_depth", placeholder="such as 0.75, 0.7, 0.65",
            persist_state="session", help=BY_DEPTH,
        )  # fmt: skip
        ranks = right.text_input(
            "By rank", key="batch_typed_rank", placeholder="such as 0.7, 0.12, 0.05", persist_state="session",
            help=BY_RANK,
        )  # fmt: skip
        if not depths.strip():
            st.info("No verdict yet: type your rates by depth.")
            return None
        rates = typed_acceptance(depths, ranks)
        return Chosen(rates, "as typed", _marginal_words(rates, metrics))
    recorded = recorded_run(TREES)
    whose = f"of {recorded.pair.name} in a recorded run, {recorded.label}"
    return Chosen(run_acceptance(recorded), whose, run=recorded)


def _imported(metrics: EngineMetrics) -> Chosen | None:
    length = metrics.draft_length
    if not length and not metrics.positions and metrics.value("mean acceptance length"):
        length = st.number_input(
            "K that the engine ran with", 1, 64, None, key="batch_told_k", placeholder="draft tokens per pass",
            help=f"{metrics.engine} does not tell it here, and without it a mean length says nothing of another K.",
        )  # fmt: skip
        if length is None:
            st.info("No verdict yet: these figures have a mean length alone. Give the K that the engine ran with.")
            return None
    rates = engine_acceptance(metrics, length)
    even = "" if metrics.positions else ", one rate for all positions"
    even += " (with another draft it is another)"
    odd = tuple(sentence for sentence in metrics.odd if sentence not in metrics.wrong)
    return Chosen(rates, f"of the draft that ran in {metrics.engine}{even}", metrics.wrong, odd, True, length)


def _marginal_words(rates: Rates, metrics: EngineMetrics | None) -> tuple[str, ...]:
    """That typed rates are the marginal ones that were imported, where they are and conditional ones are others."""
    logged = [(round(each.marginal, 3), each.conditional) for each in metrics.positions] if metrics else []
    same = all(round(conditional or 0.0, 3) == rate for rate, conditional in logged)
    if same or [round(rate, 3) for rate in rates.by_depth] != [rate for rate, _ in logged]:
        return ()
    return ("The rates typed are the marginal ones of what you pasted, and conditional ones are asked for.",)


def ask_models(
    metrics: EngineMetrics | None, given: Given, imported: bool
) -> tuple[ModelShape, ModelShape | None, str] | None:
    """Target, draft (None: lookup) and which accelerator; None where a server's own are still to be chosen, or where
    imported rates are not of them.
    """
    places, known, example = st.columns(3), list(KNOWN_MODELS), given == "example"
    whose = "example" if example else "batch"
    options = {"target": [*known, OWN_CONFIG], "draft": [*HEADS, LOOKUP, *known, OWN_CONFIG]}
    options["chip"] = [*ACCELERATORS, OWN_CHIP]
    labels = {"target": "Target", "draft": "Draft that ran" if imported else "Draft", "chip": "Accelerator"}
    begins = {"target": TARGET, "draft": DRAFT, "chip": CHIP}
    helps = {"target": TARGET_HELP, "draft": "Acceptance is that of one draft: with another, these rates do not hold."}
    chosen = {
        role: place.selectbox(
            labels[role], options[role], index=options[role].index(begins[role]) if example else None,
            key=f"{whose}_{role}", placeholder=f"Choose your {labels[role].split()[0].lower()}",
            format_func=lambda key: ACCELERATORS[key].label if key in ACCELERATORS else key, help=helps.get(role),
            persist_state="session", bind=None if example else "query-params", accept_new_options=role != "chip",
        )
        for role, place in zip(options, places, strict=True)
    }  # fmt: skip
    if None in chosen.values():
        missing = listed([labels[role].split()[0].lower() for role in chosen if chosen[role] is None])
        st.info(f"No verdict yet: it depends on your models and on what they run on. Choose {missing}.")
        return None
    pair = chosen["draft"], chosen["target"]
    ran = st.session_state.get(RAN)
    if imported and not example and ran and ran[0] == metrics and ran[1] != pair:
        st.info(
            f"No verdict for {escape_markdown(' on '.join(pair))}: your log's rates were taken as those of "
            f"{escape_markdown(' on '.join(ran[1]))}: measure this pair, or type its rates."
        )
        st.button("My log is of this pair", key="batch_ran", on_click=_set_ran, args=(metrics, pair))
        return None
    if imported and not example:
        _set_ran(metrics, pair)
    own = [role for role in ("target", "draft") if chosen[role] == OWN_CONFIG]
    places = st.columns(len(own)) if own else ()
    texts = {role: _own(role, place, whose) for role, place in zip(own, places, strict=True)}
    if missing := [role for role in own if not texts[role].strip()]:
        st.info(f"No verdict yet: paste the config.json of your {listed(missing)}, or upload it.")
        return None
    name, drafter = chosen["target"], chosen["draft"]
    target = read_shape(texts["target"], "your target") if name == OWN_CONFIG else _named(name)
    if drafter in HEADS:
        draft = eagle_head(target, HEADS[drafter])
    elif drafter == OWN_CONFIG:
        draft = read_draft(texts["draft"], "your draft", target)
    else:
        draft = None if drafter == LOOKUP else _named(drafter)
    return target, draft, chosen["chip"]


def is_of_pair(metrics: EngineMetrics | None, acceptance: Chosen, pair: str) -> bool:
    """Whether rates may be joined to the passes of the pair in memory; where not, why is said."""
    if (run := acceptance.run) and run.pair.name != pair:
        st.info(
            f"No verdict: these rates are of {escape_markdown(run.pair.name)}, and the passes of the pair in memory, "
            f"{escape_markdown(pair)}. Decode a run with it in Step through, or type its rates."
        )
        return False
    if acceptance.imported and st.session_state.get(RAN_HERE) != (metrics, pair):
        st.info(
            f"No verdict yet: the passes are of the pair in memory, {escape_markdown(pair)}, and the rates of the "
            "draft that ran in your engine."
        )
        st.button("My log is of this pair", key="batch_ran_here", on_click=_set_ran, args=(metrics, pair, RAN_HERE))
        return False
    return True


def _named(repository: str) -> ModelShape:
    """The shape of a model by its own name or that of its repository, as which it is then called."""
    known = known_name(repository)
    if known is None:
        raise SettingsError(f"{repository} is not a known model: choose “{OWN_CONFIG}” and paste its config.json.")
    return replace(known_shape(known), name=repository)


def _set_ran(metrics: EngineMetrics | None, pair: tuple[str, str] | str, key: str = RAN) -> None:
    st.session_state[key] = metrics, pair


def _own(role: str, place, whose: str) -> bytes:
    """A config.json, pasted or uploaded; until then that of a known model in the example, and empty of a server."""
    known = KNOWN_MODELS[TARGET if role == "target" else "Llama-3.2-1B"].text if whose == "example" else ""
    pasted = place.text_area(
        f"config.json of the {role}", known, key=f"{whose}_{role}_text", height=150, persist_state="session",
        placeholder='{"architectures": [...], "hidden_size": ...}', help=CONFIG_HELP,
    )  # fmt: skip
    file = place.file_uploader(
        f"Or its file ({role})", key=f"{whose}_{role}_file", help=CONFIG_HELP, max_upload_size=CONFIG_BYTES_MB
    )
    return file.getvalue() if file is not None else pasted.encode()


def ask_setup(chosen: str, metrics: EngineMetrics | None, given: Given) -> Setup:
    """The chosen accelerator or a person's own numbers, formats, context and what of the sheet is reached."""
    places = st.columns(4)
    kept = {"persist_state": "session", "bind": "query-params"}
    logged = min(metrics.devices, MOST_DEVICES) if metrics and metrics.devices else 0
    devices = places[0].number_input(
        "Tensor parallel", 1, MOST_DEVICES, logged or 1, key=f"batch_tp_{logged}" if logged else "batch_tp",
        help="GPUs that share each layer" + ("; your log has it" if logged else ""), **kept,
    )  # fmt: skip
    weights = places[1].selectbox("Weights", list(WEIGHTS), key="batch_weights", help=WEIGHTS_HELP, **kept)
    cache = places[2].selectbox("KV cache", list(CACHES), key="batch_cache", **kept)
    context = places[3].number_input(
        "Context (tokens)", 0, MOST_CONTEXT, 1024, 512, key="batch_context",
        help="Cached tokens of each sequence, prompt and answer so far", **kept,
    )  # fmt: skip
    if chosen == OWN_CHIP:
        own = st.columns(3)
        bandwidth = own[0].number_input("Memory bandwidth (GB/s)", 1.0, 1e6, 800.0, key="batch_own_bandwidth")
        flops = own[1].number_input("Dense 16-bit TFLOP/s", 0.1, 1e5, 100.0, key="batch_own_rate")
        memory = own[2].number_input("Memory (GB)", 1.0, 1e5, 48.0, key="batch_own_memory")
        chip = Accelerator("your own accelerator", 1e9 * bandwidth, 1e12 * flops, None, 1e9 * memory, "typed")
    else:
        chip = ACCELERATORS[chosen]
    if given == "own" and not logged and devices == 1:
        st.caption(TP_ASSUMED)
    return Setup(chip, int(devices), weights, cache, int(context), _efficiency())


def ask_load(
    metrics: EngineMetrics | None, acceptance: Chosen, engine: bool
) -> tuple[tuple[int, int], int, float] | None:
    """The fewest and the most sequences that run at once, K, and what the engine adds to a round, in seconds; None
    where K is beyond what acceptance is known of, which is said.

    Args:
        engine: whether the last is asked for.
    """
    places = st.columns(4)
    running = metrics.running if metrics else ()
    fewest, most = (min(each, MOST_BATCH) for each in ((min(running), max(running)) if running else USUAL_BATCH))
    seen = f"_{fewest}_{most}" if running else ""  # what another log has takes the place of what was set
    said = "Your log has it" if running else "`Running: N reqs` in vLLM's log; paste that line too, and it is read"
    first = places[0].number_input(
        "Batch, from", 1, MOST_BATCH, fewest, key=f"batch_from{seen}", help=said, persist_state="session",
        bind="query-params",
    )  # fmt: skip
    last = places[1].number_input(
        "to (sequences)", 1, MOST_BATCH, max(most, first), key=f"batch_to{seen}", persist_state="session",
        bind="query-params",
    )  # fmt: skip
    known = acceptance.length or min(USUAL_K, acceptance.rates.deepest)
    length = places[2].number_input(
        "Your K", 1, max(MOST_DEPTH, known), known, key=f"batch_k_{known}", persist_state="session",
        help="num_speculative_tokens of vLLM. Beyond the K that a log has seen, nothing is known.",
    )  # fmt: skip
    engine_ms = 0.0
    if engine:
        # a value that was just set has no default beside it
        usual = "min" if st.session_state.pop(TAKEN, False) else 1000 * Efficiency().draft_s
        engine_ms = places[3].number_input(
            "Engine, per round (ms)", 0.0, MOST_ENGINE_MS, usual, 0.25, key=ENGINE_MS,
            help=ENGINE_HELP, persist_state="session", bind="query-params",
        )  # fmt: skip
    if length > (deepest := acceptance.rates.deepest):
        st.info(
            f"No verdict for K = {length}: acceptance is known up to position {deepest}. Set K to {deepest} or less."
        )
        return None
    return (int(first), max(int(first), int(last))), int(length), engine_ms / 1000


def _efficiency() -> Efficiency:
    """What of the sheet is reached, and fixed costs: the measured defaults until a person changes them."""
    usual = Efficiency()
    with st.expander("Efficiency and fixed costs"):
        st.caption("Measured where a machine was at hand: bandwidth, FLOPs, layers and passes on one H200.")
        places = st.columns(3)
        shares = [
            places[number].number_input(words, 0.05, 1.0, share, 0.05, key=f"batch_share_{number}")
            for number, (words, share) in enumerate(
                (("Memory bandwidth reached (MBU)", usual.bandwidth), ("FLOPs reached (MFU)", usual.operations))
            )
        ]
        fixed = {"Layer (µs)": usual.layer_s, "Pass (µs)": usual.pass_s, "All-reduce (µs)": usual.all_reduce_s}
        fixed |= {"Engine, per sequence (µs)": usual.sequence_s}
        layer, single, reduced, sequence = (
            places[(number + 2) % 3].number_input(words, 0.0, 9e5, round(1e6 * seconds, 3), key=f"batch_fixed_{number}")
            for number, (words, seconds) in enumerate(fixed.items())
        )
    costs = {"layer_s": layer, "pass_s": single, "all_reduce_s": reduced, "sequence_s": sequence}
    return Efficiency(*shares, **{name: each / 1e6 for name, each in costs.items()})
