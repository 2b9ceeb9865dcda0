"""The dialog that chooses a pair: ready-made pairs with the memory they need, or any two models."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import streamlit as st

from decoding.common.cost_model import CostCurve, CostModel, kept_costs
from decoding.common.formats import byte_size, duration, listed, plural
from decoding.common.settings import ENGINES
from decoding.doctor import chosen_prompts
from decoding.models import presets
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown, guarded
from pages.ui.common.models import describe_pair, engine_words, loaded_pair, manager
from pages.ui.common.worker import run_now
from pages.ui.widgets.controls import picked_sampling
from viz.charts.methods import HEIGHT, CostLine, cost_figure
from viz.tables import Cell, html_table

if TYPE_CHECKING:
    from decoding.analysis.pair_files import Finding
    from decoding.sampling.sampling import Sampling
    from pages.ui.common.worker import ModelTask

OWN_PAIR = "own"


class PublishedPair(NamedTuple):
    """What a paper says of a pair of its own."""

    name: str
    paper: str
    level_share: str = ""  # of the time of a target pass that a draft level takes
    level: str = ""  # time of a draft level
    one_row: str = ""  # time of a target pass
    parameter_share: str = ""  # of the target's parameters that the draft has


PUBLISHED = (
    PublishedPair("Llama-2 7B + 70B, offloaded", "DySpec, section 5.3", "0.5%", "25 ms", "5 s"),
    PublishedPair("Pythia 70M + 2.8B", "DynaTree", parameter_share="2.5%"),
    PublishedPair("Llama 68M + Llama-2 7B", "DySpec", parameter_share="1%"),
)
ROWS = (1, 16, 64)  # of the passes whose times are named
WIDTH_HELP = (
    "A wider target holds copies of the embedded one side by side: it computes the same, and a pass takes as long as "
    "one of a larger model. The draft stays as small as it is, so drafting costs as little beside verification as with "
    "the papers' pairs."
)
PRECISION_HELP = (
    "auto uses float32 on a CPU and for the embedded pair. bfloat16 halves the memory that every pass reads; on a CPU "
    "it is offered where the processor has instructions for it, and auto never picks it."
)
ENGINE_HELP = (
    "transformers: its own forward. packed: our forward with packed weights, about twice as fast on a CPU. "
    "cuda_graph: fixed shapes that a CUDA GPU replays as graphs. auto takes the fastest that fits the models."
)
LIMIT_HELP = (
    "How much device memory the target's weights may take. The rest stays in CPU memory (on a CPU: on disk) and is "
    "copied over for every pass, so a target larger than the GPU runs, slowly."
)


@st.dialog("Choose a pair of models", width="large", on_dismiss="rerun")
def pair_dialog(tab: str = "Pair") -> None:
    """Choose, see the memory needed, load; of the pair in memory the measured time of passes, and what is wrong."""
    choose, costs, doctor = st.tabs(["Pair", "Time per pass", DOCTOR], default=tab)
    with choose:
        draw_choice()
    with costs:
        draw_costs()
    with doctor:
        draw_doctor()


def draw_choice() -> None:
    """The widgets to choose and load a pair. The old pair is released before the new one is loaded."""
    models = manager()
    _begin_with(models.settings)
    if models.info is not None:
        st.caption("In memory: " + escape_markdown(describe_pair(models.info)) + models.memory_words())
        st.caption(escape_markdown(engine_words(models.info)))
    left, right = st.columns([2, 3], gap="medium")
    with left:
        names = [*presets.PRESETS, OWN_PAIR]
        needs = [_need_words(name) for name in names]  # not in the labels: a choice whose label changes is lost
        chosen = st.radio("Pair", names, format_func=_preset_words, captions=needs, key="pair_preset")
        if chosen in presets.PRESETS:
            st.caption(escape_markdown(presets.PRESETS[chosen].note))
    with right:
        _draw_settings(chosen)


def _begin_with(settings: presets.PairSettings) -> None:
    """Have the form begin with the pair in memory; what was chosen since it was opened stays."""
    names = settings.target, settings.draft
    ready = {(each.settings.target, each.settings.draft): name for name, each in presets.PRESETS.items()}
    chosen = ready.get(names, OWN_PAIR)
    known = {
        "preset": chosen, f"chat_{chosen}": settings.chat, "widen": settings.widen, "device": settings.device,
        "dtype": settings.dtype if settings.dtype in precisions(settings.device) else "auto",
        "engine": settings.engine, "context": settings.context_length, "limit": settings.max_memory_gib,
        "split": settings.split,
    }  # fmt: skip
    if chosen == OWN_PAIR:
        known |= {"target": settings.target, "draft": settings.draft}
    for name, value in known.items():
        st.session_state.setdefault(f"pair_{name}", value)


def _draw_settings(chosen: str) -> None:
    """How a chosen pair is to be loaded, what that needs and takes, and the button that loads it."""
    models, settings = manager(), None
    with guarded():
        widen = _width() if chosen == presets.EMBEDDED else 1
        settings = _settings(chosen, widen)
        need = presets.memory_estimate(settings) if settings else None
        if settings is None:
            st.caption("Enter a Hugging Face id, a folder or a GGUF file for each model.")
        elif need is None:
            st.caption("The memory this pair needs is unknown until its configuration is on this machine.")
        else:
            context = f"{settings.context_length:,}"
            st.caption(f"Needs about {byte_size(need)}: weights, KV caches of {context} tokens, logits of one tree.")
    if settings is not None:
        st.caption(escape_markdown(f"{pass_words(settings)} {papers_words()}"))
    pressed = st.button("Load this pair", type="primary", key="pair_load", disabled=settings is None)
    place = st.container()  # below the button, which stays where it was pressed
    if pressed:
        with guarded(place):
            with place:
                run_now("Loading the pair", lambda job: models.load(settings), alone=True)
            st.rerun()


def _width() -> int:
    """How many times as wide the embedded target is to be, and what that means."""
    width = st.segmented_control(
        "Width of the target", presets.WIDTHS, format_func=lambda n: f"{n}×", key="pair_widen",
        required=True, help=WIDTH_HELP,
    )  # fmt: skip
    if said := presets.wide_words(width):
        st.caption(f"It {said}.")
    return width


def pass_words(settings: presets.PairSettings) -> str:
    """What passes of a pair took when they were last measured here, in a sentence; how to find out where none were."""
    name, wanted = presets.pair_name(settings), {settings.device, settings.dtype, settings.engine} - {"auto"}
    kept = [costs for pair, costs in kept_costs()
            if pair == name and all(re.search(rf"\b{word}\b", costs.placement) for word in wanted)]  # fmt: skip
    if not kept:
        return "Its passes have no times on this machine yet: Load this pair measures them, in a few seconds."
    costs = max(kept, key=lambda each: each.measured)
    level, *passes = pass_times(costs)
    rows = ", ".join(map(str, ROWS[:-1])) + f" and {ROWS[-1]}"
    return (
        f"Measured here on {costs.measured[:10]} ({costs.placement}): a draft level takes {duration(level)}, target "
        f"passes over {rows} rows {', '.join(map(duration, passes[:-1]))} and {duration(passes[-1])}. A draft level "
        f"costs {level / passes[0]:.1%} of a target pass."
    )


def _settings(chosen: str, widen: int) -> presets.PairSettings | None:
    """The settings chosen in the widgets, None while a name is missing."""
    preset = presets.PRESETS.get(chosen)
    if preset is None:
        left, right = st.columns(2)
        target = left.text_input("Target", key="pair_target", placeholder="EleutherAI/pythia-1.4b, a folder, a .gguf")
        draft = right.text_input("Draft", key="pair_draft", placeholder="EleutherAI/pythia-70m, a folder, a .gguf")
        chat_possible, chat_default = True, False
    else:
        target, draft = preset.settings.target, preset.settings.draft
        chat_possible = chat_default = preset.settings.chat
    device_place, dtype_place, engine_place = st.columns(3, vertical_alignment="bottom")
    context_place, limit_place, split_place = st.columns(3, vertical_alignment="bottom")
    device = device_place.selectbox("Device", presets.DEVICES, key="pair_device")
    dtype = dtype_place.selectbox("Precision", precisions(device), key="pair_dtype", help=PRECISION_HELP)
    engine = engine_place.selectbox("Engine", ENGINES, key="pair_engine", help=ENGINE_HELP)
    context = context_place.number_input(
        "Context, tokens",
        presets.MIN_CONTEXT,
        presets.MAX_CONTEXT,
        step=256,
        key="pair_context",
    )
    limit = limit_place.number_input(
        "Device limit, GiB", min_value=0.1, value=None, step=1.0, key="pair_limit", placeholder="none", help=LIMIT_HELP
    )
    with split_place:
        split = st.toggle("Split over GPUs", key="pair_split", help="For a target larger than one GPU.")
        st.session_state.setdefault(f"pair_chat_{chosen}", chat_default)
        chat = st.toggle("Chat template", key=f"pair_chat_{chosen}", disabled=not chat_possible)
    if not target.strip() or not draft.strip():
        return None
    return presets.PairSettings(
        target=target.strip(),
        draft=draft.strip(),
        device=device,
        dtype=dtype,
        split=split,
        context_length=int(context),
        chat=chat,
        engine=engine,
        max_memory_gib=limit,
        widen=widen,
    )


def precisions(device: str) -> list[str]:
    """The precisions offered on a device: a CPU without bfloat16 instructions would only be slower in it."""
    slow_on_cpu = {"float16"} if presets.cpu_computes_bfloat16() else {"float16", "bfloat16"}
    if device == "auto":
        device = presets.choose_device(device)
    return [name for name in presets.DTYPES if device != "cpu" or name not in slow_on_cpu]


def _preset_words(name: str) -> str:
    """A choice of the dialog."""
    if name not in presets.PRESETS:
        return "Your own pair"
    return escape_markdown(presets.PRESETS[name].label)


def _need_words(name: str) -> str:
    """The memory that a ready-made pair needs with the device and precision chosen, or what one's own pair is."""
    if name not in presets.PRESETS:
        return "two ids, folders or GGUF files"
    chosen = {
        "device": st.session_state.get("pair_device", "auto"),
        "dtype": st.session_state.get("pair_dtype", "auto"),
        "widen": st.session_state.get("pair_widen", 1) if name == presets.EMBEDDED else 1,
    }
    need = presets.memory_estimate(replace(presets.PRESETS[name].settings, **chosen))
    return byte_size(need) if need else ""


MEASURE_HELP = "Takes a second or two. Long upper whiskers mean that the machine was busy."


def draw_costs() -> None:
    """The times of all pairs, the curves of the one in memory, and a button that measures it."""
    models = manager()
    st.caption(
        "How the time of a pass grows with its nodes decides how large a tree is worthwhile. The method "
        "*Hardware-aware* chooses its depth, width and size from these times."
    )
    table = st.empty()
    table.html(times_table(kept_costs()))
    st.caption(
        "A pair without times is measured when it is loaded: choose it under *Pair* and press *Load this pair*. "
        "*Measure now* measures the pair in memory, or loads the one named at top."
    )
    button, place, shown = st.container(), st.container(), st.container()
    if button.button("Measure now", key="costs_measure", icon=":material/timer:", help=MEASURE_HELP):
        with guarded(place), place:
            run_now("Measuring passes", lambda job: models.measure_costs())
        table.html(times_table(kept_costs()))
    if models.costs is not None:
        with shown:
            lines = cost_line(models.costs.target), cost_line(models.costs.draft)
            chart(cost_figure(*lines, is_dark()), "costs", HEIGHT)
            st.caption(escape_markdown(measured_words(models.costs)))


def times_table(kept: Sequence[tuple[str, CostModel]]) -> str:
    """Measured times of a draft level and of target passes of every choice and every other pair that was measured here,
    and what the papers say of theirs.

    `kept`: names of pairs and their costs, as `kept_costs` gives them.
    """
    heads = (
        "Pair", Cell("Draft level, 1\u00a0row", "number"),
        *(Cell(f"Target pass, {plural(size, 'row')}".replace(f"{size} ", f"{size}\u00a0"), "number") for size in ROWS),
        Cell("Level ÷ pass, 1\u00a0row", "number"), Cell("Draft ÷ target, parameters", "number"), "Measured",
    )  # fmt: skip
    labels = {presets.pair_name(preset.settings): preset.label for preset in presets.PRESETS.values()}
    shares = {
        presets.pair_name(each): parameter_share(each)
        for name, preset in presets.PRESETS.items()
        for each in (replace(preset.settings, widen=n) for n in (presets.WIDTHS if name == presets.EMBEDDED else (1,)))
    }
    rows: list[tuple[str | Cell, ...]] = []
    for name in [*shares, *sorted({name for name, _ in kept} - shares.keys())]:
        label, share = labels.get(name, name), shares.get(name, "–")
        found = sorted((costs for known, costs in kept if known == name), key=lambda each: each.placement)
        if not found:
            rows.append((label, *["–"] * (len(ROWS) + 2), share, "not yet"))
        for costs in found:
            level, *passes = pass_times(costs)
            times = map(duration, (level, *passes))
            rows.append((label, *times, f"{level / passes[0]:.1%}", share, f"{costs.measured[:10]}, {costs.placement}"))
    rows += [
        (each.name, each.level or "–", each.one_row or "–", *["–"] * (len(ROWS) - 1), each.level_share or "–",
         each.parameter_share or "–", f"as given by {each.paper}")
        for each in PUBLISHED
    ]  # fmt: skip
    return html_table(heads, rows, "ruled pair-times", label="Times of passes of every pair")


def parameter_share(settings: presets.PairSettings) -> str:
    """How many of the target's parameters the draft has, as a share; a dash where that is not known."""
    target = presets.model_shape(settings.target, "target", settings.widen)
    draft = presets.model_shape(settings.draft, "draft")
    return "–" if target is None or draft is None else f"{draft.parameters / target.parameters:.1%}"


def pass_times(costs: CostModel) -> tuple[float, ...]:
    """Seconds of a draft level of one row, and of target passes over `ROWS`."""
    return float(costs.draft.seconds(1)), *(float(costs.target.seconds(size)) for size in ROWS)


def papers_words() -> str:
    """The ratios of the papers' pairs, in a sentence."""
    timed = [f"{each.level_share} ({each.paper}: {each.name})" for each in PUBLISHED if each.level_share]
    counted = [f"{each.parameter_share} ({each.paper}: {each.name})" for each in PUBLISHED if each.parameter_share]
    return (
        f"For comparison, a draft level of the papers costs {listed(timed)} of a target pass, and their drafts have "
        f"{listed(counted)} of the target's parameters."
    )


def cost_line(curve: CostCurve) -> CostLine:
    """A curve as the chart draws it."""
    points = curve.points
    every = np.arange(1, points[-1].size + 1)
    return CostLine(
        sizes=tuple(point.size for point in points),
        medians=tuple(1000 * point.seconds for point in points),
        lows=tuple(1000 * point.low_s for point in points),
        highs=tuple(1000 * point.high_s for point in points),
        line=tuple((1000 * curve.seconds(every)).tolist()),
    )


def measured_words(costs: CostModel) -> str:
    """When, where and how the times were measured, and the time outside the passes."""
    words = (
        f"Measured on {costs.when} after {plural(costs.prefix_length, 'token')} of text: points are medians of "
        "the least disturbed stretch, whiskers quartiles of all repeats; the line joins the points and never falls as "
        f"passes grow. {costs.machine}."
    )
    if costs.beside:
        words += f" Other work went on meanwhile: {costs.beside}."
    if not costs.iterations:
        return f"{words} Passes are so slow that the time outside them is negligible."
    return (
        f"{words} Outside its passes an iteration takes {duration(costs.iteration_s)} and each draft level "
        f"{duration(costs.level_s)}, medians of {plural(costs.iterations, 'real iteration')}."
    )


DOCTOR = "Acceptance doctor"
DOCTOR_HELP = (
    "Reads the files of both models and lets them read eight sample prompts, some ten seconds; the temperatures are "
    "those chosen on Step through."
)


def draw_doctor() -> None:
    """A button that examines the pair in memory, and what each check found: faults first, with what to do."""
    shown = st.container()
    if st.button("Check this pair", key="doctor_check", icon=":material/stethoscope:", help=DOCTOR_HELP):
        sampling = picked_sampling()
        with guarded(shown), shown:
            st.session_state["doctor_found"] = run_now("Checking this pair", lambda job: _examined(job, sampling))
    with shown:
        name, found = st.session_state.get("doctor_found", ("", ()))
        if not found:
            st.caption(
                "What lowers acceptance in practice, checked one by one: chat templates, tokenizers, padded "
                "vocabularies, context, weights, quantisation, precision, temperature, text, loops. Nothing leaves "
                "this machine."
            )
            return
        faults = [each for each in found if each.verdict == "fault"]
        words = f"{plural(len(faults), 'fault')} of {plural(len(found), 'check')}"
        st.markdown(f"**{words}** · {escape_markdown(name)}")
        for each in faults:
            st.error(escape_markdown(f"{each.check}: {each.evidence}. {each.mend}"), icon=":material/report:")
        with st.container(key="doctor_rows", gap="xsmall"):
            for each in (each for each in found if each.verdict != "fault"):
                icon = ":material/check_circle:" if each.verdict == "sound" else ":material/help:"
                st.markdown(f"{icon} **{each.check}** · {escape_markdown(f'{each.verdict}: {each.evidence}')}")


def _examined(job: "ModelTask", sampling: "Sampling") -> tuple[str, tuple["Finding", ...]]:
    """The pair in memory and what the doctor found; call it in the worker."""
    from decoding.analysis.doctor import Examined, findings
    from decoding.analysis.pair_files import read_files

    pair = loaded_pair(job)
    job.report(0, 0, "reading prompts")
    target, draft = (read_files(pair.settings, role) for role in ("target", "draft"))
    found = findings(Examined(target, draft, pair, ""), pair.settings.chat, chosen_prompts(None), sampling)
    return pair.info.name, found
