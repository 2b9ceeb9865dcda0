"""When speculation stops to pay: a target, a draft and an accelerator chosen, the modelled answer drawn."""

import html
import json
from functools import lru_cache
from pathlib import Path

import streamlit as st

from decoding.analysis.batch import (
    DraftShape,
    Rates,
    chain_by_batch,
    engine_acceptance,
    run_acceptance,
    typed_acceptance,
)
from decoding.analysis.known_models import KNOWN_MODELS, known_shape
from decoding.analysis.model_shape import EAGLE3_VOCABULARY, ModelShape, eagle_head, read_draft, read_shape
from decoding.analysis.roofline import ACCELERATORS, CACHES, MOST_CONTEXT, WEIGHTS, Accelerator, Efficiency, Setup
from decoding.analysis.when_it_pays import CAUTION, MODELLED, Answer, BatchRow, answer, measured_answer
from decoding.common.errors import DraftscopeError
from decoding.recorded import recorded_run
from decoding.trace.engine_metrics import EngineMetrics
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown, show_error
from pages.ui.common.models import manager
from pages.ui.common.state import current_run
from pages.ui.widgets.costs import ASK, DISTURBED_FROM, draw_disturbed_batches, measure_batches_button, measured_on
from viz.charts.engines import speedup_by_batch_figure
from viz.formats import plural

OWN_CONFIG, OWN_CHIP = "your own config.json", "your own numbers"
HEADS = {"EAGLE head on the target": None, "EAGLE-3 head on the target": EAGLE3_VOCABULARY}
LOOKUP = "lookup in the text (free)"
TARGET = "Llama-3.1-8B"
TREES = "tree_helps"
FIGURES, ON_SCREEN, TYPED = "the figures imported here", "the run in Step through", "typed"
RECORDED = "a recorded run"
CHART_HEIGHT = 380
CONFIG_HELP = (
    "The text of the model's config.json on Hugging Face. No weights are needed, and nothing leaves this machine."
)
WEIGHTS_HELP = (
    "fp8 also computes in 8 bits where the accelerator can; int8 and int4 are unpacked to 16 bits. The output head "
    "stays in 16 bits."
)
LIMITS = (
    "Everything here is modelled: bytes and operations of each pass over what a data sheet gives, plus fixed costs. "
    "Published bf16 and fp8 passes of dense models in recent engines are within 12% of "
    "it; with experts or int4 it is 23 to 69% too fast. "
    "Routing to experts is taken to be even and independent; real routing touches fewer."
)

BY_DEPTH = (
    "How often the draft's first choice is accepted at each depth, of the times that all before it are. vLLM logs "
    "marginal rates instead: paste its line on the left, or divide each rate by the one before."
)
BY_RANK = (
    "How often the draft's first, second, third choice is the one accepted, over all depths; they add up to at most 1. "
    "Empty: chains only."
)
ELSEWHERE, HERE = "another accelerator, modelled", "this machine, measured"

modelled = lru_cache(maxsize=16)(answer)


def draw_batches(metrics: EngineMetrics | None, is_example: bool) -> None:
    """Controls, the sentence, the chart and the table."""
    passes = st.segmented_control(
        "Passes", [ELSEWHERE, HERE], default=ELSEWHERE, required=True, key="batch_passes", persist_state="session",
        help="Costs of passes: modelled from data sheets, or those of the pair in memory, measured on this machine.",
    )  # fmt: skip
    try:
        if passes == HERE:
            found, acceptance, about, below = _measured(metrics, is_example)
        else:
            target, draft, chosen = _models()
            setup = _setup(chosen)
            acceptance = _acceptance(metrics, is_example)
            found = modelled(target, draft, setup, acceptance[0])
            about, below = _about(target, draft), [f"{setup.line[0].upper()}{setup.line[1:]}.", LIMITS]
    except DraftscopeError as error:
        show_error(error)
        return
    if found is None or acceptance is None:
        return
    disturbed = passes == HERE and any(each.others > DISTURBED_FROM for each in manager().batch_costs[""].values())
    said = escape_markdown(found.sentence)
    st.markdown(f"Disturbed by other work, so not to act on. {said}" if disturbed else f"**{said}**")
    rates, whose = acceptance
    depths = ", ".join(f"{rate:.2f}" for rate in rates.by_depth[:6])
    ranks = f"; by rank {', '.join(f'{rate:.2f}' for rate in rates.by_rank[:4])}" if rates.by_rank else ""
    lacking = "" if found.has_trees else " Without acceptance by rank there is no tree: a run with trees has it."
    st.caption(
        escape_markdown(f"{about}. Acceptance {whose}: conditional by depth {depths} and so on{ranks}.{lacking}")
    )
    if passes == ELSEWHERE:
        st.caption(escape_markdown(CAUTION))
    chart(_figure(found, is_dark()), key="engine_batches", height=CHART_HEIGHT)
    st.html(Path(__file__).with_name("view.css"))
    st.html(batches_html(found))
    schedule = json.dumps(chain_by_batch([row.point for row in found.rows]))
    st.markdown("**For vLLM**, whose `--speculative-config` takes the chain by batch size: first, last, tokens")
    st.code(f'"num_speculative_tokens_per_batch_size": {schedule}', language="json", wrap_lines=True)
    for line in below:
        st.caption(escape_markdown(line))


def _about(target: ModelShape, draft: ModelShape | None) -> str:
    active = f" ({target.active_parameters / 1e9:.3g}B of them active)" if target.experts else ""
    drafting = draft.name if draft else "lookup, which costs nothing"
    return f"{target.name}, {target.parameters / 1e9:.3g}B parameters{active}, drafted by {drafting}"


def _measured(
    metrics: EngineMetrics | None, is_example: bool
) -> tuple[Answer | None, tuple[Rates, str] | None, str, list[str]]:
    """The answer from measured passes of the pair in memory; None where they are not measured, with a button."""
    costs = manager().batch_costs.get("")
    if costs is None:
        st.caption(ASK)
        measure_batches_button([""])
        return None, None, "", []
    draw_disturbed_batches(costs)
    acceptance = _acceptance(metrics, is_example)
    first = costs[min(costs)]
    said = (
        f"{measured_on(first)[:1].upper()}{measured_on(first)[1:]}, behind {first.prefix_length} tokens of each text. "
        "What an iteration takes beside its passes is counted once for the whole batch."
    )
    return measured_answer(costs, acceptance[0]), acceptance, manager().info.name, [said]


def _models() -> tuple[ModelShape, ModelShape | None, str]:
    """Target, draft (None: lookup), and which accelerator was chosen."""
    left, right, chip = st.columns(3)
    known = list(KNOWN_MODELS)
    name = left.selectbox(
        "Target", [*known, OWN_CONFIG], key="batch_target", persist_state="session", help=CONFIG_HELP
    )  # fmt: skip
    drafts = [*HEADS, LOOKUP, *known, OWN_CONFIG]
    drafter = right.selectbox("Draft", drafts, key="batch_draft", persist_state="session")
    chosen = chip.selectbox(
        "Accelerator", [*ACCELERATORS, OWN_CHIP], key="batch_chip", persist_state="session",
        format_func=lambda key: ACCELERATORS[key].label if key in ACCELERATORS else key,
    )  # fmt: skip
    own = [role for role, picked in (("target", name), ("draft", drafter)) if picked == OWN_CONFIG]
    texts = {role: _own(role, place) for role, place in zip(own, st.columns(len(own)) if own else (), strict=True)}
    target = read_shape(texts["target"], "your target") if name == OWN_CONFIG else known_shape(name)
    if drafter in HEADS:
        draft = eagle_head(target, HEADS[drafter])
    elif drafter == OWN_CONFIG:
        draft = read_draft(texts["draft"], "your draft", target)
    else:
        draft = None if drafter == LOOKUP else known_shape(drafter)
    return target, draft, chosen


def _own(role: str, place) -> bytes:
    """A config.json, pasted or uploaded; the example's until then."""
    example = KNOWN_MODELS[TARGET if role == "target" else "Llama-3.2-1B"].text
    pasted = place.text_area(
        f"config.json of the {role}", example, key=f"batch_{role}_text", height=150, persist_state="session",
        help=CONFIG_HELP,
    )  # fmt: skip
    file = place.file_uploader(f"Or its file ({role})", key=f"batch_{role}_file", help=CONFIG_HELP)
    return file.getvalue() if file is not None else pasted.encode()


def _setup(chosen: str) -> Setup:
    """The chosen accelerator or a person's own numbers, formats, context and what of the sheet is reached."""
    places = st.columns(4)
    weights = places[0].selectbox(
        "Weights", list(WEIGHTS), key="batch_weights", persist_state="session", help=WEIGHTS_HELP
    )
    cache = places[1].selectbox("KV cache", list(CACHES), key="batch_cache", persist_state="session")
    context = places[2].number_input(
        "Context (tokens)", 0, MOST_CONTEXT, 512, 512, key="batch_context", persist_state="session",
        help="Cached tokens of each sequence, prompt and answer so far",
    )  # fmt: skip
    devices = places[3].number_input(
        "Accelerators",
        1,
        64,
        1,
        key="batch_devices",
        persist_state="session",
        help="That share each layer (tensor parallel)",
    )
    if chosen == OWN_CHIP:
        own = st.columns(3)
        bandwidth = own[0].number_input("Bandwidth (GB/s)", 1.0, 1e6, 800.0, key="batch_own_bandwidth")
        operations = own[1].number_input("Dense 16-bit operations (TFLOP/s)", 0.1, 1e5, 100.0, key="batch_own_rate")
        memory = own[2].number_input("Memory (GB)", 1.0, 1e5, 48.0, key="batch_own_memory")
        chip = Accelerator("your own accelerator", 1e9 * bandwidth, 1e12 * operations, None, 1e9 * memory, "typed")
    else:
        chip = ACCELERATORS[chosen]
    return Setup(chip, int(devices), weights, cache, int(context), _efficiency())


def _efficiency() -> Efficiency:
    """What of the sheet is reached, and fixed costs: the measured defaults until a person changes them."""
    usual = Efficiency()
    with st.expander("Efficiency and fixed costs"):
        st.caption(
            "Measured where a machine was at hand: bandwidth, operations, layers and passes on one H200 (docs/gpu.md). "
            "The engine's own work on a draft is that of vLLM in 2025 at a batch of one; with larger batches SGLang "
            "0.4.4 took 2 to 8 ms."
        )
        places = st.columns(3)
        shares = [
            places[number].number_input(words, 0.05, 1.0, share, 0.05, key=f"batch_share_{number}")
            for number, (words, share) in enumerate(
                (("Share of bandwidth", usual.bandwidth), ("Share of operations", usual.operations))
            )
        ]
        fixed = {"Layer (µs)": usual.layer_s, "Pass (µs)": usual.pass_s, "All-reduce (µs)": usual.all_reduce_s}
        fixed |= {"Engine, per draft (µs)": usual.draft_s, "Engine, per sequence (µs)": usual.sequence_s}
        costs = [
            places[(number + 2) % 3].number_input(words, 0.0, 9e5, round(1e6 * seconds, 3), key=f"batch_fixed_{number}")
            for number, (words, seconds) in enumerate(fixed.items())
        ]
    return Efficiency(*shares, *(each / 1e6 for each in costs))


def _acceptance(metrics: EngineMetrics | None, is_example: bool) -> tuple[Rates, str]:
    """The rates chosen, and whose they are in words."""
    run = current_run()
    there = {FIGURES: metrics is not None, ON_SCREEN: run is not None, RECORDED: True, TYPED: True}
    offered = [name for name in there if there[name]]
    if metrics is None or is_example:  # its profile has no ranks, and so no trees
        offered.sort(key=lambda name: name != RECORDED)
    chosen = st.segmented_control(
        "Acceptance of", offered, default=offered[0], required=True, key=f"batch_acceptance_{'_'.join(offered)}"
    )
    if chosen == FIGURES and metrics is not None:
        return engine_acceptance(metrics), f"of the {metrics.engine} figures imported"
    if chosen == ON_SCREEN and run is not None:
        return run_acceptance(run.trace), f"of {run.trace.pair.name}, {run.trace.label}"
    if chosen == TYPED:
        left, right = st.columns(2)
        depths = left.text_input(
            "By depth, conditional", "0.75, 0.7, 0.65", key="batch_typed_depth", persist_state="session", help=BY_DEPTH
        )
        ranks = right.text_input(
            "By rank", "0.7, 0.12, 0.05", key="batch_typed_rank", persist_state="session", help=BY_RANK
        )
        return typed_acceptance(depths, ranks), "as typed"
    recorded = recorded_run(TREES)
    return run_acceptance(recorded), f"of {recorded.pair.name} in a recorded run, {recorded.label}"


def _figure(found: Answer, dark: bool):
    series = {
        "best chain": [(r.point.batch, r.point.chain.speedup, f"K={r.point.chain.shape.depth}") for r in found.rows]
    }
    if found.has_trees:
        series["best tree"] = [
            (row.point.batch, tree.speedup, _tree_words(tree.shape)) for row in found.rows if (tree := row.point.tree)
        ]
    crowded = next((row.point.batch for row in found.rows if not row.fits), None)
    ends = found.tree_ends if found.has_trees else found.chain_ends
    return speedup_by_batch_figure(series, ends, MODELLED, crowded, dark)


def _tree_words(shape: DraftShape) -> str:
    return f"{plural(shape.nodes, 'node')}, depth {shape.depth}"


def batches_html(found: Answer) -> str:
    """The table by batch size; all text is escaped."""
    heads = ("batch", "tokens/s, plain", "pass", "chain", "gain", "tree", "gain", "verification", "limited by")
    numbers = (True, True, True, False, True, False, True, True, False)
    rows = "".join(
        "<tr>" + "".join(_cell(cell, number) for cell, number in zip(_cells(row), numbers, strict=True)) + "</tr>"
        for row in found.rows
    )
    head = "".join(
        f"<th{' class=number' if number else ''}>{text}</th>" for text, number in zip(heads, numbers, strict=True)
    )
    source = f"{found.source[0].upper()}{found.source[1:]}"
    filled = f"<caption>{source}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    table = f'<table class="engine-names modelled">{filled}</table>'
    return f'<div class="engine-box" tabindex="0" role="region" aria-label="{source}, by batch size">{table}</div>'


def _cell(text: str, number: bool) -> str:
    return f"<td{' class=number' if number else ''}>{html.escape(text)}</td>"


def _cells(row: BatchRow) -> tuple[str, ...]:
    chain, tree = row.point.chain, row.point.tree
    branching = (_tree_words(tree.shape), f"{tree.speedup:.2f}x") if tree else ("–", "–")
    return (
        str(row.point.batch), f"{row.point.plain:,.0f}", f"{1000 * row.plain_s:.2f} ms", f"K={chain.shape.depth}",
        f"{chain.speedup:.2f}x", *branching, f"{1000 * row.verify_s:.2f} ms",
        (row.limit or "–") + ("" if row.fits else "; no room in memory"),
    )  # fmt: skip
