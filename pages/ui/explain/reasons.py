"""Why a token is or is not in the tree, and the smallest change of one setting that would have included it."""

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING

import streamlit as st

from decoding.common.errors import NEEDS_TORCH
from decoding.common.formats import chance, limit_and_drawn, number, ordinal, plural
from decoding.trace.records import IterationTrace, VerificationStep, node_paths
from pages.ui import PAGES
from pages.ui.common.errors import escape_markdown, info_of, torch_there
from pages.ui.common.models import manager
from pages.ui.common.state import Run, keep_result, known_results, pair_of, trace_at
from pages.ui.common.worker import ModelTask, job_bar, job_button
from pages.ui.explain.subject import Subject, absent_subject, subject_of
from pages.ui.tune.controls import FROM_RUN, pin_iteration
from pages.ui.tune.controls import KEY as TUNE
from pages.ui.widgets.controls import set_method, setting_words
from viz.explain.draft_rule import gates_met
from viz.explain.expansion import why_absent, why_in_tree, why_not_expanded, why_pruned
from viz.explain.iteration import residuals, verdict_words, why_final, why_verdict
from viz.explain.known import Known, distribution_text, distribution_title, is_sampled, target_of, target_shown
from viz.glossary import explain_term
from viz.scope.phases import FINAL_ID
from viz.tables import Cell, Markup, html_table
from viz.tokens import quote, readable, token_text, visible

if TYPE_CHECKING:
    from decoding.analysis.smallest_change import SettingChange, SmallestChanges


SLOT = "why_change"
TRIED = 3
ASKED = {"replayed": "replayed from stored logits", "live": "the draft model was run again"}


def draw_change(run: Run, iteration: IterationTrace, subject: Subject) -> None:
    """The button and the answer for a token that was not verified; for others, why settings do not apply."""
    keep_result(SLOT)
    if not asks_for_change(iteration, subject):
        said = (
            "It was in the verified tree, so the verifier decided, not the settings of the tree. *Verifiers* shows "
            "what every other verifier does with it; *What if* changes something and decodes from here."
        )
        if not iteration.tree_was_drafted:
            said = "Nothing was drafted in this iteration."
        elif subject.node == FINAL_ID:
            said = "A node has this token too, so the verifier decided, not a setting of the tree."
        elif subject.parent < 0:
            said = "The root is the last committed token: it is always there."
        st.caption(said)
        if subject.in_tree or subject.node == FINAL_ID:
            verifiers_link(run)
        return
    verifiers_link(run)
    path = path_to(iteration, subject)
    found = known_results().get(key_of(run, subject.index, path))
    if found is not None:
        show_changes(run, iteration, found)
        if not found.untried:
            return
    if not torch_there():
        st.caption(escape_markdown(f"Which setting would have included it? {NEEDS_TORCH}"))
        return
    job_button(
        SLOT, "Search again" if found else "Which setting would have included it?", "Trying settings",
        lambda job: find(run, subject.index, path, job), key="why_change", icon=":material/tune:",
        help="Varies one setting of the drafter at a time and drafts this tree again with each value",
    )  # fmt: skip
    job_bar(SLOT)


def verifiers_link(run: Run) -> None:
    """Leads from a verdict to what every verifier does with the tree."""
    if st.button(
        "Which verifier accepts more on this tree?", key="why_verifiers", icon=":material/fact_check:", type="tertiary",
        help="Every verifier on this tree, and its tests node by node",
    ):  # fmt: skip
        st.session_state["verify_asked"] = run.key
        st.switch_page(PAGES["Verifiers"], query_params={})


def asks_for_change(iteration: IterationTrace, subject: Subject) -> bool:
    """Whether a setting of the drafter may have excluded a token from the verified tree."""
    if not iteration.tree_was_drafted or subject.parent < 0:
        return False
    if iteration.nodes[subject.parent].stop_reason == "length_limit":  # the drafter has no say there
        return False
    if subject.in_tree:
        return iteration.nodes[subject.node].flat_index is None
    verified = (node for node in iteration.nodes if node.parent_id == subject.parent and node.flat_index is not None)
    return all(node.token_id != subject.token_id for node in verified)


def key_of(run: Run, index: int, path: tuple[int, ...]) -> tuple:
    """Cache key of an answer: with the run's pair in memory more can be tried."""
    info = manager().info
    has_pair = run.has_models or (info is not None and info.name == run.trace.pair.name)
    return ("change", run.key, index, path, has_pair)


def path_to(iteration: IterationTrace, subject: Subject) -> tuple[int, ...]:
    """Token ids from below the root down to the token."""
    return (*node_paths(iteration)[subject.parent], subject.token_id)


def find(run: Run, index: int, path: tuple[int, ...], job: ModelTask) -> "tuple[tuple, SmallestChanges]":
    """Search for the changes; call it in the worker.

    Raises:
        DraftscopeError: logits are missing and the run's pair is not in memory, or another method built the tree.
    """
    from decoding.analysis.smallest_change import change_search, smallest_changes

    rows = run.trace.iterations[index].draft_logits is not None
    job.report(0, 0, "" if rows else "loading the models, a few seconds")
    pair = pair_of(run, load=not rows)
    found = smallest_changes(change_search(trace_at(run, index), index, pair), path, job.proceed("setting {} of {}"))
    return key_of(run, index, path), found


def show_changes(run: Run, iteration: IterationTrace, found: "SmallestChanges") -> None:
    """The changes found, smallest first, each with the resulting tree size and a button to try it."""
    if not found.changes:
        whole = not (found.unknown or found.too_large or found.untried)
        st.markdown(f"**No {'single setting' if whole else 'setting tried'} includes it.**")
    else:
        explained = (
            f"{plural(found.trees, 'tree')} drafted again, varying one setting at a time from the values in force. "
            "Ordered by the change relative to the old value, or to the whole range if that was 0. The random draws "
            "are those of the run."
        )
        st.markdown("**Smallest changes that include it**", help=explained)
    for place, change in enumerate(found.changes[:TRIED]):
        left, right = st.columns([3.4, 1], vertical_alignment="center")
        left.html(f'<div class="why">{change_html(found, change)}</div>')
        if right.button(
            "Try it", key=f"why_try_{place}", icon=":material/arrow_forward:", width="stretch",
            help="Opens it in Tune live, next to the original tree",
            on_click=try_change, args=(run, iteration, change),
        ):  # fmt: skip
            st.switch_page("pages/tune_live.py", query_params={})
    st.caption(escape_markdown(_rest_words(found)))


def change_html(found: "SmallestChanges", change: "SettingChange") -> str:
    """One change and what it costs."""
    info = info_of(change.setting)
    size = f" (a change of {change.size:.0%})" if change.before and not isinstance(change.before, bool) else ""
    nodes = f"{plural(change.verified, 'node')} verified instead of {found.verified:,}"
    if change.drafted != found.drafted:
        nodes += f", {change.drafted:,} drafted instead of {found.drafted:,}"
    detail = f"{nodes} · {ASKED[change.asked]}" + ("" if change.sure else " · a smaller change could not be tried")
    before, after = (
        "no limit" if change.setting == "children" and not value else html.escape(setting_words(value))
        for value in (change.before, change.after)
    )
    arrow = f"{before} → <b>{after}</b>{size}"
    return f'<div><b>{html.escape(info.title)}</b> {arrow}<br><span class="quiet">{detail}</span></div>'


def _rest_words(found: "SmallestChanges") -> str:
    """What was tried without success, and what could not be tried."""
    parts = []
    if found.changes[TRIED:]:
        parts.append(f"Also: {_labels(change.setting for change in found.changes[TRIED:])}.")
    if found.without:
        parts.append(f"No value that was tried helps: {_labels(found.without)}.")
    if found.unknown:
        parts.append(
            f"Not every value could be tried: {_labels(found.unknown)}. Other trees need logits that were not "
            "recorded: load the run's pair."
        )
    if found.too_large:
        parts.append(
            f"Not every value could be tried: {_labels(found.too_large)}. Their trees have more nodes "
            "than one search allows."
        )
    if not found.changes:
        parts.append(f"{plural(found.trees, 'tree')} drafted again, varying one setting at a time.")
    if found.untried:
        parts.append(f"Stopped before trying: {_labels(found.untried)}.")
    return " ".join(parts)


def _labels(names: Iterable[str]) -> str:
    return "; ".join(info_of(name).label for name in names)


def try_change(run: Run, iteration: IterationTrace, change: "SettingChange") -> None:
    """Open the change in Tune live, on this prefix and at the run's sampling, next to the original tree.

    Call it in a callback: the sampling widgets are on this page too and must be drawn afterwards.
    """
    st.session_state["tune_source"] = FROM_RUN
    pin_iteration(run, iteration)
    set_method(TUNE, st.session_state["tune_pinned"].with_settings(**{change.setting: change.after}))


MOST_ABSENT = 10


def draw_reasons(run: Run) -> None:
    """The selected token on the left; on the right what would have included it, and other missing tokens."""
    subject = subject_of(run)
    if subject is None:
        st.caption("The text ended here, so this iteration has no final token: select a node above.")
        return
    iteration = readable(run.trace.iterations[subject.index])
    left, right = st.columns([1.15, 1], gap="large")
    with left:
        # Everything known about a token; its text comes from a model and is escaped.
        said = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences(iteration, subject))
        tests = _tests(iteration, max(subject.parent, 0), subject)
        numbers, gates = _numbers(iteration, subject), _gates(iteration, subject)
        st.html(f'<div class="why">{_head(iteration, subject)}{said}{numbers}{gates}{tests}</div>')
    with right:
        draw_change(run, iteration, subject)
        absent_tokens(run, iteration, subject)
        if left_of := residuals_html(iteration, subject):
            st.html(left_of)


def residuals_html(iteration: IterationTrace, subject: Subject) -> str:
    """What every rejection at the token's place left of it, and the likeliest tokens left; empty without any."""
    # The root is no candidate after itself: only the likeliest tokens left are shown.
    left = residuals(iteration, max(subject.parent, 0), 3, token=subject.token_id)
    if not left:
        return ""
    own = Markup(f"<code>{html.escape(visible(subject.text, 16))}</code>")
    heads, rows = ["", *([Cell(own, "number")] if subject.parent >= 0 else []), "likeliest left"], []
    for each in left:
        rest = ("", 1.0 - sum(p for _, p in each["rows"]))
        tokens = Markup("".join(map(_bar, [*each["rows"], *([rest] if rest[1] > 5e-4 else [])])))
        after = each["after"].removeprefix("residual of the target's distribution ")
        rows.append((after, *([each["own"]] if subject.parent >= 0 else []), tokens))
    return (
        f'<div class="why"><h5 title="{html.escape(explain_term("residual"))}">Residual of the target after each '
        f'rejection</h5><div class="all">{html_table(heads, rows)}</div></div>'
    )


def _bar(row: tuple[str, float]) -> str:
    """A token of a residual with its probability as a bar; without text, the rest of the residual."""
    text, p = row
    name = f"<code>{html.escape(visible(text, 16))}</code>" if text else "all others"
    bar = f'<i style="display:inline-block;height:.5em;width:{4 * p:.2f}em;background:currentColor;opacity:.45"></i>'
    return f"<div>{bar} {name} {number(p, 3)}</div>"


def sentences(iteration: IterationTrace, subject: Subject) -> list[str]:
    """Why the token was drafted, and why accepted, rejected or absent."""
    if subject.node == FINAL_ID:
        sentences = [why_final(iteration)]
        parent = iteration.nodes[subject.parent]
        drafted = absent_subject(iteration, subject.index, subject.parent, subject.token_id).node
        if drafted is not None:
            removed = why_pruned(iteration, drafted)
            sentences.append(f"Node {drafted} had this token. {removed}" if removed else "")
        elif parent.stop_reason == "expanded":
            sentences.append(why_absent(iteration, subject.parent, subject.token_id))
        return [sentence for sentence in sentences if sentence]
    if subject.node is None:
        return [why_absent(iteration, subject.parent, subject.token_id)]
    stop_reason = why_not_expanded(iteration, subject.node)
    sentences = [
        why_in_tree(iteration, subject.node), why_verdict(iteration, subject.node),
        f"{stop_reason[0].upper()}{stop_reason[1:]}.",
    ]  # fmt: skip
    return [sentence for sentence in sentences if sentence]


def _head(iteration: IterationTrace, subject: Subject) -> str:
    token = f'<code class="token">{html.escape(visible(subject.text, 24))}</code>'
    if subject.in_tree:
        node = iteration.nodes[subject.node]
        where = f"node {node.node_id} · depth {node.depth} · {verdict_words(iteration, node.node_id)}"
    else:
        after = "the last committed token" if subject.parent == 0 else f"node {subject.parent}"
        kind = f"{iteration.final_kind} token" if subject.node == FINAL_ID else "not in the draft tree"
        where = f"after {after} · {kind}"
    return f'<p>{token} <span class="quiet">{html.escape(where)}</span></p>'


def _numbers(iteration: IterationTrace, subject: Subject) -> str:
    """Probabilities of the token at its place, with ranks where they are recorded."""
    if subject.parent < 0:
        return ""
    pairs = []
    draft = Known(iteration).draft_rank(subject.parent, subject.token_id)
    node = iteration.nodes[subject.node] if subject.in_tree else None
    given = node.draft_probability if node is not None else draft.probability
    if given is not None or draft.rank is not None:
        place = f"{ordinal(draft.rank)} choice" if draft.rank is not None else "not in its top 20"
        pairs.append(("draft", place if given is None else f"{number(given, 4)} · {place}"))
    if given is not None:
        pairs.append(("path probability", number(iteration.nodes[subject.parent].path_probability * given, 4)))
    rank, target = target_of(iteration, subject.parent, subject.token_id)
    # Greedy decoding takes the likeliest token at any temperature.
    whose = f"target, {distribution_text(iteration)}" if is_sampled(iteration) else "target"
    if target is not None:
        pairs.append((whose, f"{number(target, 4)} · {ordinal(rank)}"))
    elif node is not None and node.target_probability is not None:
        pairs.append((whose, number(target_shown(node), 4)))
    if node is not None and node.acceptance_probability is not None and is_sampled(iteration):
        pairs.append(("reached and accepted (exact)", chance(node.acceptance_probability)))
    if node is not None and node.multiplicity > 1:
        pairs.append(("drafted", f"{node.multiplicity} times"))
    facts = "".join(f"<div><dt>{name}</dt><dd>{html.escape(value)}</dd></div>" for name, value in pairs)
    return f"<dl>{facts}</dl>" if facts else ""


GATE_MARKS = {"passed": "✓", "stopped": "✗", "breadth": "→"}


def _gates(iteration: IterationTrace, subject: Subject) -> str:
    """The gates that a drafted node met, in order; empty for drafters without gates."""
    met = gates_met(iteration, subject.node) if subject.in_tree else ()
    rows = [(f"{GATE_MARKS[gate.outcome]} {gate.name}", gate.words) for gate in met]
    return f"<h5>Gates in order</h5>{html_table((), rows)}" if met else ""


def _tests(iteration: IterationTrace, place: int, subject: Subject) -> str:
    """The verifier's decisions at this place, in order; without draws, only the distributions."""
    steps = [step for step in iteration.steps if step.node_id == place]
    if not steps:
        return ""
    drawn, late = is_sampled(iteration), place in Known(iteration).after_end
    tested = drawn and any(step.kind != "choice" for step in steps)
    rows = [_test_row(iteration, step, drawn, tested, late) for step in steps]
    probs, probs_help = distribution_title(iteration)
    numbers = {"draft": explain_term("draft probability"), probs: probs_help}
    numbers |= {"passes": explain_term("acceptance probability")} if tested else {}
    numbers |= {"random number": explain_term("draw")} if drawn else {}
    heads = [Cell("token", "token"), *(Cell(name, "number", about) for name, about in numbers.items()), "outcome"]
    asked = ["asked" if step.token_id == subject.token_id else "" for step in steps]
    after = "the root" if place == 0 else quote(iteration.nodes[place].text)
    title = f"Tests after {after}, in order" if drawn else f"Compared with the target's argmax after {after}, in order"
    if not drawn and all(step.kind == "choice" for step in steps):
        title = f"The target's argmax after {after}: only a child with it is accepted"
    if drawn and not tested:
        title = f"No acceptance tests after {after}: one token is drawn from the target's distribution"
        if iteration.children(place):
            title += ". A child with it is accepted, the others are rejected"
    return f"<h5>{html.escape(title)}</h5>{html_table(heads, rows, row_kinds=asked)}"


def _test_row(
    iteration: IterationTrace, step: VerificationStep, drawn: bool, tested: bool, late: bool
) -> tuple[str, ...]:
    """One test, match or choice; of a choice nothing passes or fails: its outcome has its probability."""
    child = None if step.child_id is None else iteration.nodes[step.child_id]
    _, target = target_of(iteration, step.node_id, step.token_id)
    if child is not None and target is None:
        target = target_shown(child)
    draft = Known(iteration).draft_rank(step.node_id, step.token_id)
    given = number(draft.probability if child is None else child.draft_probability, 3)
    if given == "–" and draft.floor:
        given = f"<{number(draft.floor, 3).removeprefix('<')}"
    passes, number_drawn = "–", number(step.drawn)
    if step.kind != "choice":
        passes, number_drawn = limit_and_drawn(step.acceptance_probability, step.drawn)
    numbers = [given, number(target, 3), *([passes] if tested else []), *([number_drawn] if drawn else [])]
    text = visible(token_text(iteration, step.token_id), 16)
    in_vain = late and (step.kind == "choice" or (step.kind == "test" and step.accepted))
    if step.kind == "match":
        rival = visible(iteration.nodes[step.rival_id].text, 12)
        outcome = f"{'beats' if step.accepted else 'loses to'} ‘{rival}’"
    elif step.kind == "choice" and step.child_id is None:
        kind = "final" if iteration.final_kind == "none" else iteration.final_kind
        outcome = f"{kind} token{f', sampled at {chance(step.acceptance_probability)}' if drawn else ''}"
    elif step.kind == "choice" and drawn:
        outcome = f"sampled at {chance(step.acceptance_probability)}"
    else:
        outcome = "accepted" if step.accepted else "rejected"
    return text, *numbers, outcome + (", but the text had ended" if in_vain else "")


def absent_tokens(run: Run, iteration: IterationTrace, subject: Subject) -> None:
    """Likely tokens at the same place that have no node, as buttons that explain why."""
    place = max(subject.parent, 0)
    drafted = {node.token_id for node in iteration.nodes if node.parent_id == place}
    known: dict[int, float] = {}
    for token, _, p in (*iteration.draft_top(place), *iteration.target_top(place)):
        if token not in drafted:
            known[token] = max(p, known.get(token, 0.0))
    tokens = sorted(known, key=lambda token: -known[token])[:MOST_ABSENT]
    if not tokens:
        return
    key = f"why_absent_{run.key}_{subject.index}_{place}"
    here = subject.token_id if subject.node is None and subject.token_id in tokens else None
    if st.session_state.get(key) != here:
        st.session_state[key] = here

    def ask() -> None:
        chosen = st.session_state[key]
        st.session_state["absent"] = None if chosen is None else (run.key, subject.index, place, chosen)

    after = "the last committed token" if place == 0 else quote(iteration.nodes[place].text)
    st.pills(
        escape_markdown(f"Not drafted after {after}: why not?"), tokens, key=key, on_change=ask, wrap=True,
        format_func=lambda token: escape_markdown(visible(token_text(iteration, token), 14)),
    )  # fmt: skip
