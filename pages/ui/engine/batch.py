"""What pays at a server's batch: the verdict on its own K, what flips it, the chart and table by batch, the command."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import streamlit as st

from decoding.analysis.batch import DraftShape, chain_by_batch
from decoding.analysis.model_shape import ModelShape
from decoding.analysis.own_server import LogCheck, OwnPoint, log_check, other_vocabulary, own_point
from decoding.analysis.roofline import BATCHES, Setup, caution, roofline_costs
from decoding.analysis.when_it_pays import MODELLED, Answer, BatchRow, answer, measured_answer
from decoding.common.errors import DraftscopeError
from decoding.common.formats import listed, parameters, plural
from decoding.trace.engine_config import sglang_chain_command, vllm_command
from decoding.trace.engine_fields import ENGINE_SOURCES
from decoding.trace.engine_metrics import EngineMetrics
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown, show_error
from pages.ui.common.models import manager
from pages.ui.engine.models import (
    ENGINE_MS,
    MOST_ENGINE_MS,
    TAKEN,
    Chosen,
    Given,
    ask_acceptance,
    ask_load,
    ask_models,
    ask_setup,
    is_of_pair,
)
from pages.ui.engine.own import UNCHECKED, best_words, check_words, flip_words, headline, log_headline
from pages.ui.widgets.costs import ASK, DISTURBED_FROM, draw_disturbed_batches, measure_batches_button, measured_on
from viz.charts.engines import speedup_by_batch_figure
from viz.tables import Cell, html_table

CHART_HEIGHT = 380
EXAMPLE = (
    "An example: acceptance of a recorded run that drafted trees, with models and an accelerator chosen for show. "
    "Paste your engine's log on the left for yours."
)
LIMITS = (
    "Everything here is modelled: bytes and FLOPs of each pass over what a data sheet gives, plus fixed costs. "
    "Published bf16 and fp8 steps of dense models in recent engines are within 13% of it. It is too fast for experts, "
    "int8 and int4, by 23 to 69%, and for passes over 64 tokens of a sequence, by 14 to 43% on an H200. The draft has "
    "the formats of the target, and reads one token a level. Routing to experts is taken to be even and independent; "
    "real routing touches fewer."
)
COMMANDS = ("vLLM", "SGLang")  # engines whose command is written here
DYNAMIC = (
    "vLLM's V2 model runner was reported to draft the largest K at every batch (GitHub thread 51510): "
    "count your drafts."
)
ELSEWHERE, HERE = "a server, modelled", "the pair loaded here, measured"
PASSES_HELP = "Costs of passes: of your server, modelled from data sheets, or of the pair in memory on this machine."

modelled = lru_cache(maxsize=16)(answer)


@dataclass(frozen=True)
class Judged:
    """An answer, and what it was asked of.

    Attributes:
        about: models and setup in a sentence. below: what to know of it, a sentence each.
        wrong: why not to act on it. check: the log beside the model; None where there is nothing to compare.
        running_known: whether the log has how many sequences ran.
        command: target, draft, devices and engine; None where no command is written.
        sequence_s: what is taken as the engine's work for each sequence of a round.
    """

    found: Answer
    acceptance: Chosen
    load: tuple[int, int]
    about: str
    below: Sequence[str]
    wrong: tuple[str, ...]
    check: LogCheck | None = None
    running_known: bool = False
    command: tuple[ModelShape, ModelShape | None, int, str] | None = None
    sequence_s: float = 0.0


def draw_batches(metrics: EngineMetrics | None, given: Given) -> None:
    """Controls, the verdict, the chart, the table and the command."""
    if given == "example":
        st.info(EXAMPLE, icon=":material/draft:")
    passes = st.segmented_control(
        "Passes of", [ELSEWHERE, HERE], default=ELSEWHERE, required=True, key="batch_passes", persist_state="session",
        help=PASSES_HELP,
    )  # fmt: skip
    try:
        judged = _measured(metrics, given) if passes == HERE else _modelled(metrics, given)
    except DraftscopeError as error:
        show_error(error)
        return
    if judged is not None:
        _draw(judged)


def _modelled(metrics: EngineMetrics | None, given: Given) -> Judged | None:
    acceptance = ask_acceptance(metrics, given)
    if acceptance is None:
        return None
    models = ask_models(metrics, given, acceptance.imported)
    if models is None:
        return None
    target, draft, chip = models
    setup = ask_setup(chip, metrics, given)
    asked = ask_load(metrics, acceptance, engine=True)
    if asked is None:
        return None
    load, length, engine_s = asked
    setup = replace(setup, efficiency=replace(setup.efficiency, draft_s=engine_s))
    batches = tuple(sorted({*BATCHES, *load}))  # the usual ones, and both ends of the server's own
    found = modelled(target, draft, setup, acceptance.rates, batches, length)
    engine = metrics.engine if metrics else "vLLM"
    room = _lacking(
        found.most, load, metrics, "Memory as set has room for", "the context, KV cache, weights or tensor parallel"
    )
    check = None
    if metrics and acceptance.imported and not room:

        def own_at(batch: int) -> OwnPoint:
            costs = roofline_costs(target, draft, setup, batch)
            return own_point(costs, acceptance.rates, length, setup.engine_s(batch))

        own = _within(found, load)
        if own[0].length == acceptance.length:  # the K that is judged is the log's own
            check = log_check(metrics, own[0], own[-1], own_at)
    return Judged(
        found, acceptance, load, _about(target, draft, setup), (f"{setup.line[0].upper()}{setup.line[1:]}.", LIMITS),
        (*acceptance.wrong, *filter(None, (other_vocabulary(target, draft), room))),
        check, acceptance.imported and metrics is not None and bool(metrics.running),
        (target, draft, setup.devices, engine) if engine in COMMANDS and given != "example" else None,
        setup.efficiency.sequence_s,
    )  # fmt: skip


def _lacking(most: int | None, load: tuple[int, int], metrics: EngineMetrics | None, has: str, correct: str) -> str:
    """Why there is no verdict at a server's batch; empty where there is, at the part of it that can be judged at least.

    Args:
        most: the largest batch that can be judged; None: any can. has: of which this is said. correct: what to change.
    """
    running = metrics.running if metrics else ()
    if most is None or load[1] <= most or not (running or load[0] > most):
        return ""
    asked = f"your log has {load[1]:,}" if load[1] in running else f"{load[1]:,} are asked for"
    return f"{has} {plural(most, 'sequence')}, {asked}: correct {correct}."


def _measured(metrics: EngineMetrics | None, given: Given) -> Judged | None:
    """The answer from measured passes of the pair in memory; None where rates are of another, or where they are not
    measured, with a button.
    """
    models, acceptance = manager(), ask_acceptance(metrics, given)
    if acceptance is None or (models.info and not is_of_pair(metrics, acceptance, models.info.name)):
        return None
    head = acceptance.run.draft_head if acceptance.run else ""
    costs = models.batch_costs.get(head)
    if costs is None or models.info is None:
        st.caption(ASK)
        measure_batches_button([head])
        return None
    draw_disturbed_batches(costs, head)
    asked = ask_load(metrics, acceptance, engine=False)
    if asked is None:
        return None
    load, length, _ = asked
    first, disturbed = costs[min(costs)], any(each.others > DISTURBED_FROM for each in costs.values())
    said = (
        f"{measured_on(first)[:1].upper()}{measured_on(first)[1:]}, behind {first.prefix_length} tokens of each text. "
        "What an iteration takes beside its passes is counted once for the whole batch."
    )
    sizes = sorted(costs)
    beyond = _lacking(
        sizes[-1], load, metrics, "Passes are measured of up to", "the batch, or take the passes of a server"
    )
    disturbance = "Other work disturbed the passes while they were measured." if disturbed else ""
    found = measured_answer(costs, acceptance.rates, length)
    about, near = models.info.name, _within(found, load)
    if (near[0].batch, near[-1].batch) != load:
        about += f", measured at batches of {listed([*map(str, sizes)])}, of which the nearest to yours are judged"
    wrong = (*acceptance.wrong, *filter(None, (disturbance, beyond)))
    return Judged(found, acceptance, load, about, (said,), wrong)


def _about(target: ModelShape, draft: ModelShape | None, setup: Setup) -> str:
    active = f" ({parameters(target.active_parameters)} of them active)" if target.experts else ""
    drafting = draft.name if draft else "lookup, which costs nothing"
    devices = f"{setup.devices} x " if setup.devices > 1 else ""
    return (
        f"{target.name}, {parameters(target.parameters)} parameters{active}, drafted by {drafting}, on {devices}"
        f"{setup.accelerator.label}, {setup.context:,} tokens of context each"
    )


def _within(found: Answer, load: tuple[int, int]) -> list[OwnPoint]:
    """The server's K at its own batches; those nearest to them where these are not in the table."""
    return [row.own for row in _rows(found, load) if row.own]


def _rows(found: Answer, load: tuple[int, int]) -> list[BatchRow]:
    inside = [row for row in found.rows if load[0] <= row.point.batch <= load[1]]
    return inside or [min(found.rows, key=lambda row: abs(row.point.batch - load[0]))]


def _draw(judged: Judged) -> None:
    found, rates = judged.found, judged.acceptance.rates
    own, is_modelled = _within(found, judged.load), found.source == MODELLED
    for sentence in judged.wrong:
        st.warning(escape_markdown(sentence), icon=":material/error:")
    for sentence in judged.acceptance.odd:
        st.caption(escape_markdown(sentence))
    if judged.wrong:
        st.markdown("No verdict: mend this first.")
        return
    check = judged.check
    contradicted = check is not None and not check.agrees
    said = headline(own, is_modelled)
    if check and contradicted:
        said = log_headline(check, own[0], own[-1], judged.running_known)
    said = escape_markdown(said)
    st.markdown(f"**{said}**")
    words = [check_words(check, own[0], own[-1], judged.running_known)] if check else []
    if check is None and is_modelled and judged.acceptance.imported and own[0].length == judged.acceptance.length:
        words.append(UNCHECKED)
    if check and contradicted:
        words.append(f"By the model alone: {headline(own, is_modelled)} {flip_words(own, is_modelled)}")
        if found.most and found.most < judged.load[1]:
            words.append(f"Memory as set has room for {plural(found.most, 'sequence')}.")
    else:
        rows = _rows(found, judged.load)
        ends = rows if len(rows) == 1 else [rows[0], rows[-1]]
        whole, kinds = found.sentence.partition(": ")[2], "chain or tree" if found.has_trees else "K"
        words = [
            best_words(ends),
            flip_words(own, is_modelled),
            *words,
            f"With the best {kinds} of each batch, {whole}",
        ]
    for sentence in words:
        st.markdown(escape_markdown(sentence))
    if check and contradicted and (added := check.engine_s(own[0])) > own[0].engine_s:
        ms = min(round(1000 * (added - own[0].batch * judged.sequence_s), 2), MOST_ENGINE_MS)
        st.button(
            f"Model with {ms:.3g} ms of engine per round", key="batch_take_engine", icon=":material/input:",
            on_click=st.session_state.update, args=({ENGINE_MS: ms, TAKEN: True},),
            help="What your log leaves for the engine, at the smallest batch",
        )  # fmt: skip
    depths = ", ".join(f"{rate:.2f}" for rate in rates.by_depth[:6])
    ranks = f"; by rank {', '.join(f'{rate:.2f}' for rate in rates.by_rank[:4])}" if rates.by_rank else ""
    lacking = "" if found.has_trees else " No trees: rates by rank are needed, which vLLM lacks and a run here has."
    known = len(rates.by_depth)
    kept = f" Beyond depth {known} the last rate is kept." if known < rates.deepest else ""
    said = f"{judged.about}. Acceptance {judged.acceptance.whose}: conditional {depths}{ranks}.{kept}{lacking}"
    st.caption(escape_markdown(said))
    if is_modelled:
        st.caption(escape_markdown(caution()))
    if not contradicted:  # the chart, the table and the command all hold a schedule of K
        chart(_figure(found, judged.load, is_dark()), key="engine_batches", height=CHART_HEIGHT)
        st.html(batches_html(found))
        if judged.command:
            _draw_command(found, judged.load, *judged.command)
    for line in judged.below:
        st.caption(escape_markdown(line))


def _draw_command(
    found: Answer, load: tuple[int, int], target: ModelShape, draft: ModelShape | None, devices: int, engine: str
) -> None:
    """The engine's command with the best chain, once a person has named what is served."""
    st.markdown(f"**For {engine}**")
    method, source = _method(draft, target), ENGINE_SOURCES[engine.lower()]
    names = {"Target": target.name} | ({"Draft": draft.name} if draft else {})
    served = [
        place.text_input(
            f"{role}, repository or path", name if "/" in name and name.count(" ") == 0 else "",
            key=f"serve_{role}_{name}", persist_state="session", placeholder=name,
        ).strip()
        for place, (role, name) in zip(st.columns(2), names.items(), strict=False)
    ]  # fmt: skip
    if not all(served):
        st.caption("The command follows once you have named what you serve.")
        return
    if engine == "SGLang":
        row = _rows(found, load)[-1]
        length = row.gains.index(max(row.gains)) + 1 if max(row.gains) > 1 else 0
        text = sglang_chain_command(served[0], served[-1], method, length, devices)
        said = f"SGLang keeps one K: this is the best at a batch of {row.point.batch}."
    else:
        schedule = chain_by_batch([row.point for row in found.rows])
        text = vllm_command(served[0], speculation(method, served[-1], schedule), devices)
        said = above_words(method, schedule)
        if "per_batch_size" in text:
            said = f"Entries are `[first batch, last batch, K]`. {said} {DYNAMIC}"
    st.code(text, language="sh", wrap_lines=True)
    st.caption(f"{said} Names as {source.label} {source.version} has them.")


def _method(draft: ModelShape | None, target: ModelShape) -> str:
    """What vLLM calls the way to draft."""
    if draft is None:
        return "ngram"
    if draft.layers > 1 or draft.hidden != target.hidden:
        return "draft_model"
    return "eagle3" if draft.vocabulary != target.vocabulary else "eagle"


def above_words(method: str, schedule: Sequence[tuple[int, int, int]]) -> str:
    """What vLLM does beyond the batches that its configuration names."""
    (_, last, tokens), pays = schedule[-1], [end for _, end, count in schedule if count]
    if not pays:
        return "No draft pays at any of these batches, so there is no --speculative-config."
    if method == "ngram" or len(schedule) == 1:
        loses = f"above a batch of {pays[-1]} it is modelled to lose" if pays[-1] < last else f"modelled up to {last}"
        return f"It drafts at every batch: {loses}."
    kept = f"K = {tokens}, which was not modelled there" if tokens else "plain decoding"
    return f"Above a batch of {last} vLLM keeps the last entry: {kept}."


def speculation(method: str, draft: str, schedule: Sequence[tuple[int, int, int]]) -> dict:
    """The content of vLLM's `--speculative-config` for chains by batch; empty where none of them pays."""
    most = max(tokens for _, _, tokens in schedule)
    if not most:
        return {}
    config = {"method": method, "num_speculative_tokens": most}
    if method != "ngram":
        config["model"] = draft
        if len(schedule) > 1:
            config["num_speculative_tokens_per_batch_size"] = [list(entry) for entry in schedule]
    return config


def _figure(found: Answer, load: tuple[int, int], dark: bool):
    rows = found.rows
    series = {"best chain": [(r.point.batch, r.point.chain.speedup, f"K={r.point.chain.shape.depth}") for r in rows]}
    if found.has_trees:
        series["best tree"] = [
            (row.point.batch, tree.speedup, _tree_words(tree.shape)) for row in rows if (tree := row.point.tree)
        ]
    own = [(row.point.batch, row.own.gain, "yours") for row in rows if row.own]
    if own:
        series[f"your K = {rows[0].own.length}"] = own
    ends = found.tree_ends if found.has_trees else found.chain_ends
    return speedup_by_batch_figure(series, ends, MODELLED, found.most, dark, load)


def _tree_words(shape: DraftShape) -> str:
    return f"{plural(shape.nodes, 'node')}, depth {shape.depth}"


def batches_html(found: Answer) -> str:
    """The table by batch size."""
    first = found.rows[0]
    numbers = ["batch", "tokens/s, plain", "plain step", "best K", "its round", "gain"]
    numbers += [f"K={first.own.length}"] if first.own else []
    heads = [
        *(Cell(name, "number") for name in numbers),
        *(["best tree", Cell("gain", "number")] if found.has_trees else []),
        *(["verification limited by"] if first.limit else []),
    ]
    source = f"{found.source[0].upper()}{found.source[1:]}"
    rows = map(_cells, found.rows)
    return html_table(heads, rows, "ruled engine-names modelled", caption=source, label=f"{source}, by batch size")


def _cells(row: BatchRow) -> tuple[str, ...]:
    chain, tree = row.point.chain, row.point.tree
    best = str(chain.shape.depth) if chain.speedup > 1 else f"0 (K={chain.shape.depth} loses)"
    return (
        str(row.point.batch), f"{row.point.plain:,.0f}", f"{1000 * row.plain_s:.2f} ms", best,
        f"{1000 * row.round_s:.2f} ms", f"{chain.speedup:.2f}x", *([f"{row.own.gain:.2f}x"] if row.own else []),
        *((_tree_words(tree.shape), f"{tree.speedup:.2f}x") if tree else ()), *([row.limit] if row.limit else []),
    )  # fmt: skip
