"""Outputs of a comparison side by side, every method's tree on one prefix, and all of it as files."""

import html
import json
import shlex
from dataclasses import asdict, replace

import streamlit as st

from decoding.common.errors import DraftscopeError
from decoding.common.formats import duration, plural
from decoding.compare.comparison import Score, score, trees_on_prefix
from decoding.compare.contestants import Contestant, format_contestant
from decoding.models.presets import pair_words
from decoding.sampling.sampling import Sampling
from decoding.trace.exports import csv_table
from decoding.trace.metrics import RunMetrics
from decoding.trace.records import IterationTrace
from pages.ui.common.errors import escape_markdown, guarded
from pages.ui.common.models import manager
from pages.ui.common.worker import run_now
from pages.ui.compare.findings import places, same_words, sampled_words
from pages.ui.compare.plan import ComparisonResult
from pages.ui.compare.results import STYLE
from pages.ui.scope.component import lone_tree
from pages.ui.widgets.prompts import OWN_TEXT
from viz.scope.panels import PROVENANCE_WORDS, iteration_spans, provenance_counts, text_html, underline
from viz.tokens import visible

OUTPUT_HEIGHT = 270
TREE_HEIGHT = 320
DIFFERENCE = "font-weight:700;outline:1px solid"  # CSS of the first token that differs from the reference
KEPT_TREES = 12
CONTEXT_TOKENS = 14


def draw_outputs(scores: tuple[Score, ...], outcome: ComparisonResult) -> None:
    """Outputs side by side: the provenance of each token, and the first difference from the reference."""
    about = {
        "drafted": "",
        "bonus": ": the target's token after a leaf",
        "recovered": ": the target's token after a rejection",
        "fallback": ": the target's token, nothing accepted",
    }
    items = [
        f'<span><span style="{underline(name)}">{PROVENANCE_WORDS[name]}</span>{rest}</span>'
        for name, rest in about.items()
    ]
    if outcome.comparison.sampling.greedy:
        items.append("<span>bold and framed: first difference from the reference</span>")
    style = "font-size:0.84rem;display:flex;flex-wrap:wrap;gap:0.3rem 1.4rem"
    st.html(STYLE)
    st.html(f'<div style="{style}">{"".join(items)}</div>')
    columns = 2 if len(scores) in (2, 4) else 3
    for row in range(0, len(scores), columns):
        for place, entry in zip(st.columns(columns), scores[row : row + columns], strict=False):
            with place.container(border=True):
                _draw_output(entry, outcome)


def _draw_output(entry: Score, outcome: ComparisonResult) -> None:
    comparison = outcome.comparison
    reference = comparison.contestants[comparison.reference].label
    st.markdown(f"**{escape_markdown(entry.contestant.label)}** · {escape_markdown(same_words(entry, comparison))}")
    position = entry.difference.position if entry.difference else None
    number = comparison.contestants.index(entry.contestant)
    results = comparison.of(number)
    run = next((result.run for result in results if result.run), None)
    drafts = run is not None and any(iteration.drafted for iteration in run.iterations)
    with st.container(height=OUTPUT_HEIGHT, border=False, key=f"compare_output_{number}"):
        if entry.failure or not entry.output_ids:
            st.caption(escape_markdown(entry.failure or "Not measured before the run was cancelled."))
            return
        if drafts:
            spans = [span for iteration in run.iterations for span in iteration_spans(iteration)]
            spans = [replace(span, current=place == position) for place, span in enumerate(spans)]
            st.html(text_html(spans, DIFFERENCE))
        else:
            pieces = []
            for place, text in enumerate(outcome.texts[token] for token in entry.output_ids):
                weight = f' style="{DIFFERENCE}"' if place == position else ""
                line = "<br>" if text.endswith("\n") else ""
                pieces.append(f"<span{weight}>{html.escape(visible(text))}</span>{line}")
            style = "font-family:monospace;line-height:1.9;overflow-wrap:anywhere"
            st.html(f'<div style="{style}">{"<wbr>".join(pieces)}</div>')
    if drafts:
        counts = provenance_counts(spans)
        st.caption(", ".join(f"{count} {name}" for name, count in counts.items() if count))
    else:
        st.caption(
            "The target's own tokens, one per pass." if run else "Plain text: the provenance of tokens is unknown."
        )
    if entry.difference:
        st.caption(escape_markdown(f"Compared with {reference}: {entry.difference.explanation}"))
    if not comparison.sampling.greedy and number != comparison.reference:
        st.caption(escape_markdown(sampled_words(outcome, number)))


def draw_trees(scores: tuple[Score, ...], outcome: ComparisonResult) -> None:
    """Every drafting method's tree on one prefix of the text; the slider chooses the prefix."""
    # Outside baselines report no tree, autoregressive decoding has none.
    contestants = [c for c in outcome.comparison.contestants if c.method and c.method.drafter.drafts]
    results = outcome.comparison.of(outcome.comparison.reference)
    output = results[0].output_ids if results else ()
    if not contestants:
        st.info(
            "No method of this comparison drafts a tree: add one that does, such as DynaTree.", icon=":material/add:"
        )
        return
    most = max(len(output) - 1, 0)
    length = min(st.session_state.get("compare_prefix", 0), most)
    if most:
        st.session_state["compare_prefix"] = length
        parted = [place for place in places(scores) if place <= most]
        further = next((place for place in parted if place > length), parted[0] if parted else length)
        with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
            length = st.slider(
                "Prefix: the prompt and this many output tokens", 0, most, key="compare_prefix", persist_state="session"
            )
            st.button(
                "Next place where methods part", key="compare_part", icon=":material/call_split:", width="content",
                on_click=lambda: st.session_state.update(compare_prefix=further), disabled=not parted,
                help="There two of them begin an iteration together and commit different numbers of tokens. Behind "
                "the last such place it begins again.",
            )  # fmt: skip
    st.html(_prefix_html(outcome, output, length))
    if length not in outcome.trees:
        with guarded():
            trees = run_now("Drafting on this prefix", lambda job: _compute_trees(outcome, contestants, length))
            while len(outcome.trees) >= KEPT_TREES:
                outcome.trees.pop(next(iter(outcome.trees)))
            outcome.trees[length] = trees
    if length not in outcome.trees:
        return
    trees = outcome.trees[length]
    columns = min(len(trees), 2)  # three in a row would cut trees off on a small screen
    pairs = list(zip(contestants, trees, strict=True))
    for row in range(0, len(pairs), columns):
        for place, (contestant, tree) in zip(st.columns(columns), pairs[row : row + columns], strict=False):
            with place:
                number = contestants.index(contestant)
                scene = f"{outcome.key}:{length}:{number}"
                lone_tree(tree, f"compare_tree_{number}", TREE_HEIGHT, scene, title=contestant.label)
                final = f" + {tree.final_kind}" if tree.final_kind != "none" else ""
                words = f"{tree.drafted} drafted · {tree.verified} verified · {len(tree.accepted)} accepted{final}"
                words += f" · {plural(tree.draft_forwards, 'forward')} · {duration(tree.times.total_s)}"
                st.caption(escape_markdown(words))
    st.caption(
        "One iteration of each method on the same text, measured once, with its initial settings (before any history "
        "adaptation). Autoregressive decoding drafts no tree, and outside baselines report none."
    )


def _compute_trees(outcome: ComparisonResult, contestants: list[Contestant], length: int) -> list[IterationTrace]:
    """The first iteration of every drafting method on prompt + `length` output tokens; call it in the worker.

    Raises:
        DraftscopeError: the pair is no longer in memory.
    """
    models = manager()
    if models.generation != outcome.generation:
        raise DraftscopeError("Another pair has been loaded since: compare again to see trees.")
    output = outcome.comparison.of(outcome.comparison.reference)[0].output_ids
    methods = [contestant.method for contestant in contestants]
    # The first pass over a text of new length is slower for any method, so one is discarded.
    return trees_on_prefix(models.pair(), [methods[0], *methods], [*outcome.prompt_ids, *output[:length]],
                           outcome.plan.sampling)[1:]  # fmt: skip


def _prefix_html(outcome: ComparisonResult, output: tuple[int, ...], length: int) -> str:
    """The end of the prefix, and the reference's continuation."""
    before = [*outcome.prompt_texts, *(outcome.texts[token] for token in output[:length])]
    after = [outcome.texts[token] for token in output[length : length + CONTEXT_TOKENS]]
    known = html.escape("".join(visible(text) for text in before[-CONTEXT_TOKENS:]))
    coming = html.escape("".join(visible(text) for text in after))
    more = "… " if len(before) > CONTEXT_TOKENS else ""
    return (
        '<div style="font-family:monospace;font-size:0.84rem;overflow-wrap:anywhere">'
        f'{more}{known}<b style="color:var(--st-primary-color)"> ▏</b>'
        f'<span style="opacity:.65" title="continuation in the reference output">{coming}</span></div>'
    )


# CSV columns with the figures of a call; each appears twice, with and without looping iterations.
FIGURES = (
    "new_tokens", "wall_s", "prefill_s", "throughput", "decode_throughput", "ttft_s", "tpot_s", "iterations",
    "tokens_per_iteration", "drafted", "verified", "accepted", "accepted_mean", "acceptance_drafted",
    "acceptance_verified", "draft_forwards", "target_passes", "peak_memory_bytes",
)  # fmt: skip


def as_csv(outcome: ComparisonResult) -> str:
    """One row per measured call; columns that end in `_loop_free` exclude looping iterations."""
    head = ["method", "label", "prompt", "repeat", "output_tokens", "loop_free_tokens", "failure"]
    head += [*FIGURES, *(f"{name}_loop_free" for name in FIGURES)]
    rows = []
    for result in outcome.comparison.results:
        contestant, both = outcome.comparison.contestants[result.contestant], (result.metrics, result.loop_free)
        prompt = outcome.comparison.prompts[result.prompt]
        about = [format_contestant(contestant), contestant.label, prompt, result.repeat + 1, len(result.output_ids)]
        values = [getattr(metrics, name, None) for metrics in both for name in FIGURES]
        values = ["" if value is None else value for value in values]
        rows.append([*about, result.loop_free_tokens, result.failure or "", *values])
    return csv_table(head, rows)


def as_json(outcome: ComparisonResult) -> str:
    """Everything requested and measured, outputs included; of several prompts a list."""
    records = [_record(each) for each in outcome.parts or (outcome,)]
    return json.dumps(records if outcome.parts else records[0], indent=1, ensure_ascii=False) + "\n"


def _record(outcome: ComparisonResult) -> dict:
    comparison, plan = outcome.comparison, outcome.plan
    return {
        "program": "Draftscope",
        "command": command(outcome),
        "pair": asdict(outcome.pair),
        "pair_settings": asdict(outcome.settings),
        "hardware": outcome.hardware,
        "prompt": {"name": plan.prompt.name, "text": plan.prompt.text, "chat_template": plan.prompt.chat,
                   "token_ids": outcome.prompt_ids},
        "max_new_tokens": plan.max_new_tokens,
        "sampling": asdict(plan.sampling),
        "repeats": plan.repeats,
        "warmup": plan.warmup,
        "cancelled": outcome.cancelled,
        "pauses": outcome.pauses,
        "reference": comparison.contestants[comparison.reference].label,
        "loop_free": [_score_record(entry) for entry in score(comparison, loop_free=True)],
        "whole_output": [_score_record(entry) for entry in score(comparison, loop_free=False)],
        "calls": [
            {
                "method": format_contestant(comparison.contestants[result.contestant]),
                "repeat": result.repeat + 1,
                "output_ids": result.output_ids,
                "loop_free_tokens": result.loop_free_tokens,
                "failure": result.failure,
                "whole_output": _metrics_record(result.metrics),
                "loop_free": _metrics_record(result.loop_free),
            }
            for result in comparison.results
        ],
    }  # fmt: skip


def command(outcome: ComparisonResult) -> str:
    """The shell command that repeats the comparison; one per prompt."""
    if outcome.parts:
        return "\n".join(map(command, outcome.parts))
    plan, settings = outcome.plan, outcome.settings
    prompt = plan.prompt.text if plan.prompt.name == OWN_TEXT else plan.prompt.name
    words = ["python", "-m", "benchmarks.methods", "--methods"]
    words += [format_contestant(contestant) for contestant in outcome.comparison.contestants]
    words += ["--max-new-tokens", str(plan.max_new_tokens), "--repeats", str(plan.repeats)]
    # With an equals sign a text that begins with a dash is not taken for an option.
    words += ["--warmup", str(plan.warmup), f"--prompt={prompt}"]
    greedy = asdict(Sampling())
    for name, value in asdict(plan.sampling).items():
        words += [f"--{name.replace('_', '-')}={value}"] if value != greedy[name] else []
    return shlex.join([*words, *pair_words(replace(settings, chat=settings.chat and plan.prompt.chat))])


def _metrics_record(metrics: RunMetrics | None) -> dict | None:
    return asdict(metrics) if metrics else None


def _score_record(entry: Score) -> dict:
    spreads = {name: entry.spread_of(name) for name in ("throughput", "decode_throughput", "ttft_s", "tpot_s")}
    spreads |= {"over_autoregressive": entry.over_autoregressive, "over_hf_generate": entry.over_hf}
    return {
        "method": format_contestant(entry.contestant),
        "label": entry.contestant.label,
        "settings": entry.contestant.method.settings() if entry.contestant.method else None,
        **{name: asdict(value) if value else None for name, value in spreads.items()},
        "typical_call": _metrics_record(entry.typical),
        "loop_tokens": entry.loop_tokens,
        "same_output": entry.same_output,
        "difference": asdict(entry.difference) if entry.difference else None,
        "failure": entry.failure,
    }
