"""Drafters that copy from the text: what they find, why they end, and that the output stays the target's."""

import pytest

from benchmarks.table_source import TableSource, path_tokens
from decoding.compare.hf_generate import run_baseline
from decoding.drafters import LookupOrDraftDrafter, PromptLookupDrafter, SuffixDrafter
from decoding.drafters.suffix import LONGEST_MATCH, matched
from decoding.methods.method import fitting
from decoding.methods.methods import METHODS
from decoding.replay.replay import replay
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.records import STOP_REASONS
from decoding.trace.run_file import load_run, save_run
from tests.helpers.families import family
from viz.explain.expansion import stop_reason_text, why_absent, why_drafted
from viz.explain.known import Known

PROMPT = "The dog ran to the tree. The cat ran to the tree. The dog ran to the tree. The cat ran to"
FROM_TEXT = ("prompt_lookup", "suffix", "lookup_or_draft")
ALL = (*FROM_TEXT, "token_recycling")


def drafted(drafter, text, limit: int = 100):
    source = TableSource({}, [0.6, 0.4], limit, text)
    return drafter.draft(None, source, text[-1], None), source


def chain_of(draft) -> tuple[list[int], str]:
    """Tokens of a chain, and why it ends."""
    assert draft.tree.parents[1:].tolist() == list(range(draft.tree.size - 1))
    return draft.tree.tokens[1:].tolist(), STOP_REASONS[draft.tree.stop_reason[-1]]


def test_prompt_lookup_prefers_the_longest_match_and_then_the_occurrence_asked_for():
    text = (7, 1, 2, 30, 31, 9, 2, 40, 41, 1, 2, 50, 51, 8, 1, 2)  # 1 2 stands at two places, 2 alone at a third
    assert chain_of(drafted(PromptLookupDrafter(length=2), text)[0]) == ([30, 31], "max_depth")
    assert chain_of(drafted(PromptLookupDrafter(length=2, latest=True), text)[0]) == ([50, 51], "max_depth")
    assert chain_of(drafted(PromptLookupDrafter(longest=1, length=2), text)[0]) == ([30, 31], "max_depth")
    nothing, _ = drafted(PromptLookupDrafter(longest=3, shortest=3), text)
    assert chain_of(nothing) == ([], "no_match") and nothing.tree.branching.tolist() == [-1]


@pytest.mark.parametrize(
    ("limit", "length", "tokens", "reason"), [(100, 8, [2, 1], "no_match"), (1, 8, [2], "length_limit"),
                                              (0, 8, [], "length_limit"), (1, 1, [2], "max_depth")],
)  # fmt: skip
def test_a_copy_ends_with_the_text_or_a_limit(limit, length, tokens, reason):
    assert chain_of(drafted(PromptLookupDrafter(length=length), (1, 2, 1), limit)[0]) == (tokens, reason)


@pytest.mark.parametrize("text", [(5,), (5, 6)])
def test_a_text_that_repeats_nothing_drafts_nothing(text):
    for drafter in (PromptLookupDrafter(), SuffixDrafter()):
        assert drafted(drafter, text)[0].tree.size == 1


def test_matches_are_found_for_every_length_of_the_end():
    assert matched((1, 2, 3, 1, 2, 4, 1, 2), 64) == [[2, 5], [2, 5]]
    assert matched((3, 3, 3), 64) == [[1, 2], [2]], "occurrences may overlap the end of the text"
    assert matched((1, 2), 64) == [] and len(matched((1,) * 200, LONGEST_MATCH)) == LONGEST_MATCH


def test_a_suffix_tree_counts_what_followed_and_takes_the_likeliest():
    # Only the last token stood earlier in this place: 2 followed three times of four, then 5 twice of three, then 1.
    text = (1, 2, 5, 1, 2, 6, 1, 2, 5, 1, 3, 0, 4, 1)
    draft, _ = drafted(SuffixDrafter(per_matched_token=4.0, least_share=0.0), text)
    values = {path: draft.tree.path_probs[node + 1] for node, path in enumerate(_paths(draft))}
    assert values == pytest.approx({(2,): 0.75, (2, 5): 0.5, (2, 5, 1): 0.5, (3,): 0.25})
    reasons = [STOP_REASONS[code] for code in draft.tree.stop_reason]
    assert reasons == ["expanded", "expanded", "expanded", "budget", "budget"]
    assert draft.tree.branching.tolist() == [2, 1, 1, -1, -1]


def _paths(draft) -> list[tuple[int, ...]]:
    return [path_tokens(draft.tree, node) for node in range(1, draft.tree.size)]


def test_of_all_matches_the_one_with_the_most_expected_tokens_is_drafted():
    # 1 alone was followed by 2 or 3, but 9 1 always by 3 4: a sum of 2 against at most 1.
    text = (1, 2, 0, 9, 1, 3, 4, 7, 1, 2, 8, 9, 1)
    draft, _ = drafted(SuffixDrafter(least_share=0.0), text)
    assert chain_of(draft) == ([3, 4], "budget")


def test_a_suffix_tree_leaves_out_what_followed_too_rarely():
    text = (1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 3, 0, 9, 1)
    wide, _ = drafted(SuffixDrafter(per_matched_token=8.0, least_share=0.0, max_depth=1), text)
    narrow, _ = drafted(SuffixDrafter(per_matched_token=8.0, least_share=0.5, max_depth=1), text)
    assert sorted(wide.tree.tokens[1:].tolist()) == [2, 3] and narrow.tree.tokens[1:].tolist() == [2]
    assert wide.tree.draft_probs[1:].tolist() == [0.75, 0.25]
    assert {STOP_REASONS[code] for code in narrow.tree.stop_reason[1:]} == {"max_depth"}


def test_the_draft_model_is_asked_where_the_text_has_nothing():
    copied, source = drafted(LookupOrDraftDrafter(length=3), (1, 2, 3, 1, 2))
    assert chain_of(copied) == ([3, 1, 2], "max_depth") and not source.forwards and not copied.rows
    asked, source = drafted(LookupOrDraftDrafter(length=3), (1, 2, 3))
    assert chain_of(asked) == ([0, 0, 0], "max_depth") and source.forwards == 3 and len(asked.rows) == 3


@pytest.fixture(scope="module")
def runs(embedded):
    return {name: _decoded(embedded, METHODS[name]) for name in ("autoregressive", *ALL)}


def _decoded(pair, method, sampling=None, prompt: str = PROMPT) -> DecodeSession:
    ids = pair.vocabulary.encode(prompt)
    session = DecodeSession(pair, method, ids, sampling, Limits(24, rows="full"))
    list(session)
    return session


@pytest.mark.parametrize("name", family(ALL, "suffix"))
def test_every_verifier_that_fits_keeps_the_greedy_text(embedded, runs, name):
    fits = fitting(METHODS[name].drafter.draft_sampling, Sampling())
    assert {"greedy", "nss"} <= set(fits)
    for verifier in fits:
        session = _decoded(embedded, METHODS[name].with_settings(verifier=verifier))
        assert session.tokens == runs["autoregressive"].tokens
        assert any(each.accepted for each in session.iterations)


@pytest.mark.parametrize("name", family(ALL, "prompt_lookup"))
def test_sampled_text_is_that_of_plain_sampling_with_the_same_numbers(embedded, name):
    sampling = Sampling(temperature=1.0, seed=3)
    own = _decoded(embedded, METHODS[name].with_settings(verifier="nss"), sampling)
    assert own.tokens == _decoded(embedded, METHODS["autoregressive"].with_settings(verifier="nss"), sampling).tokens


@pytest.mark.parametrize("name", family(FROM_TEXT[:2], FROM_TEXT[1]))
def test_no_draft_model_runs_and_a_rewound_session_goes_on_as_it_did(embedded, runs, name):
    session = runs[name]
    assert {each.draft_forwards for each in session.iterations} == {0}
    assert all(each.kv_draft is None for each in session.iterations)
    assert session.iterations[0].drafted, "the first pass reads prompt and tree together"
    reported = {each.verifier.name: each for each in replay(session.iterations[0], Sampling())}
    assert {name for name, each in reported.items() if each.refusal is None} == {"greedy", "nss"}
    again = session.rewind(2)
    list(again)
    assert again.tokens == session.tokens
    assert [each.drafted for each in again.iterations] == [each.drafted for each in session.iterations]
    rebuilt = _decoded(embedded, METHODS[name].with_settings(cache_policy="rebuild"))
    assert rebuilt.tokens == session.tokens and rebuilt.iterations[0].kv_target.rebuilt


def test_a_fork_from_another_method_looks_through_the_whole_text(embedded, runs):
    plain = runs["autoregressive"].rewind(12)
    fork = plain.fork(METHODS["prompt_lookup"])
    step = fork.step()
    text = tuple(plain.tokens)
    found = PromptLookupDrafter().found(text)[:10]
    assert [node.token_id for node in step.nodes[1:]] == found[: step.drafted] and step.drafted == len(found)


@pytest.mark.parametrize("name", FROM_TEXT)
def test_reasons_say_where_a_token_came_from(runs, name):
    for iteration in runs[name].iterations:
        known = Known(iteration)
        for node in iteration.nodes[1:]:
            asked = iteration.nodes[node.parent_id].draft_level is not None
            assert ("choice after" if asked else "the same tokens") in why_drafted(known, node.node_id)
        ends = [node.node_id for node in iteration.nodes if node.stop_reason == "no_match"]
        assert all("earlier in the text" in stop_reason_text(iteration, node) for node in ends)
        if iteration.drafted and iteration.nodes[0].draft_level is None:
            assert "less often" in why_absent(iteration, 0, 1 if iteration.nodes[1].token_id != 1 else 2)


@pytest.mark.parametrize("name", ALL)
def test_runs_are_kept_and_opened(runs, tmp_path, name):
    save_run(runs[name].trace(), tmp_path / "run.dscope")
    opened = load_run(tmp_path / "run.dscope")
    assert [each.rule.drafter for each in opened.iterations] == [name] * len(opened.iterations)
    assert opened.output_ids == runs[name].trace().output_ids


def test_prompt_lookup_of_transformers_writes_the_same_text(embedded, runs):
    ids = embedded.vocabulary.encode(PROMPT)
    found = run_baseline(embedded, "hf_prompt_lookup", ids, 24)
    assert list(found.output_ids) == runs["autoregressive"].tokens[len(ids) :]
    assert len(found.timeline.seconds) < 24, "several tokens came at once"
