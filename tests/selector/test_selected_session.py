"""Decoding with a selector: the shape changes from root to root, the text's distribution does not."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks.enumeration import Tables, bias, emitted_distribution
from decoding.analysis.smallest_change import change_search
from decoding.common.errors import PairError, SettingsError
from decoding.drafters import DelayedDrafter
from decoding.engines.base import Visibility
from decoding.heads.store import save_head
from decoding.methods.methods import METHODS
from decoding.models.pair import pair_identity
from decoding.replay.forks import ForkChange, fork
from decoding.replay.recorded_logits import LogitsMissing
from decoding.replay.stored_state import session_state_before
from decoding.sampling.sampling import Sampling, target_distribution
from decoding.selector.actions import ACTIONS, Action
from decoding.selector.features import divergences
from decoding.session.session import DecodeSession, Limits
from decoding.trace.run_file import load_run, save_run
from decoding.verifiers import SpecInferVerifier, TraversalVerifier
from tests.helpers.families import family
from tests.helpers.heads import random_network
from tests.helpers.selectors import LATENCY, WARM, store

FULL = {"record": "full", "rows": "full"}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch, pair):
    """A folder of trainings with one selector, `mine`, and latencies that need no measuring."""
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path))
    monkeypatch.setattr("decoding.costs.measured_pair.latency_model", lambda *_: LATENCY)
    store(tmp_path / "mine" / "selector", pair)
    return tmp_path


def session_of(pair, sampling=WARM, tokens=24, text="Once upon a time there was a cat and", **settings):
    method = METHODS["delayed"].with_settings(**{"selector": "mine", **settings})
    return DecodeSession(pair, method, pair.vocabulary.encode(text), sampling, Limits(tokens, **FULL))


class TableChooser:
    """Chooses by the text alone: what stood before the root and the root's own token."""

    verifier = "specinfer"

    def __init__(self, shapes):
        self.shapes = shapes

    def choose(self, past):
        return SimpleNamespace(action=Action(*self.shapes[past % len(self.shapes)]))


@pytest.mark.parametrize("verifier", [SpecInferVerifier(), TraversalVerifier()])
@pytest.mark.parametrize("past", family(range(3), 1))
def test_lossless_whatever_the_selector_chooses(verifier, past, monkeypatch):
    """For each text the selector says some action: over every draft and draw the output keeps the target's
    distribution.
    """
    from benchmarks.table_source import TableSource

    monkeypatch.setattr(TableSource, "past", lambda self: past, raising=False)
    tables = Tables("near", {(): [0.6, 0.3, 0.1]}, {(): [0.2, 0.3, 0.5]}, [0.1, 0.4, 0.5], [0.5, 0.25, 0.25])
    drafter = DelayedDrafter(1, 1, 1, "mine", TableChooser([(2, 0, 2), (2, 1, 1), (3, 0, 1)]))
    probs = emitted_distribution(drafter, verifier, tables)
    assert bias(probs, tables) < 1e-9
    fixed = emitted_distribution(DelayedDrafter(*[(2, 0, 2), (2, 1, 1), (3, 0, 1)][past]), verifier, tables)
    assert probs == pytest.approx(fixed, abs=1e-12)


def test_a_choice_by_drafted_tokens_would_be_biased():
    """The proof above can fail: where a drafted token decides whether it is verified, the output is biased."""

    class Peeking(DelayedDrafter):
        def draft(self, state, source, root_token, draws):
            made = super().draft(state, source, root_token, draws)
            return made if made.tree.tokens[1] == 0 else replace(made, order=made.order[:1], drawn=made.drawn[:0])

    tables = Tables("near", {(): [0.6, 0.4]}, {(): [0.2, 0.8]}, [0.5, 0.5], [0.5, 0.5])
    assert bias(emitted_distribution(Peeking(1, 1, 0), SpecInferVerifier(), tables), tables) > 0.03


def test_shapes_differ_and_are_recorded(pair):
    session = session_of(pair)
    iterations = list(session)
    shapes = [tuple(i.settings[name] for name in ("paths", "trunk", "branch")) for i in iterations]
    assert len(set(shapes)) > 2 and set(shapes) <= set(map(tuple, ACTIONS))
    assert all(i.settings["selector"] == "mine" for i in iterations)
    for iteration, (paths, trunk, branch) in zip(iterations, shapes, strict=True):
        if iteration.tree_depth < min(trunk + branch, 1):
            continue
        assert len(iteration.drawn) <= trunk + paths * branch
        assert iteration.draft_sampling == ("iid" if paths > 1 and branch else "single_path")
    assert session.trace().settings["selector"] == "mine"


def test_features_are_those_of_the_text(pair):
    """What the selector is given equals a fresh causal pass of both models over the text."""
    reported = []
    session = session_of(pair, tokens=20)
    chooser = session.method.drafter.chooser
    before = chooser.choose
    object.__setattr__(chooser, "choose", lambda past: reported.append((list(session.tokens), past)) or before(past))
    list(session)
    assert len(reported) > 3
    with torch.inference_mode():
        for tokens, past in reported:
            rows = []
            for model in (pair.target, pair.draft):
                mask, count = model.engine.mask(Visibility.causal(0, len(tokens))), len(tokens)
                cache = model.engine.new_cache(count)
                rows.append(model.engine.run_with_features(cache, np.array(tokens), np.arange(count), mask, 0))
            (target, target_features), (draft, draft_features) = rows
            assert past.length == len(tokens) and (past.temperature, past.top_p) == (WARM.temperature, WARM.top_p)
            assert np.allclose(past.target_feature, target_features[-2], atol=2e-4)
            assert np.allclose(past.target_probs, target_distribution(target[-2], WARM), atol=2e-4)
            assert np.allclose(past.draft_features, draft_features[-2:], atol=2e-4)
            assert np.allclose(past.draft_probs, torch.softmax(draft[-2:], -1), atol=2e-4)


def test_divergences_by_hand():
    p, q, r = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.5, 0.25]), np.array([1.0, 0.0, 0.0])
    found = divergences(p, q, r)
    log = np.log
    expected = [log(2), 0.5 * log(4) + 0.5 * log(2), 0.0, 0.5 * log(2), 0.25 * log(0.5) + 0.25 * log(0.25 / 1e-8), 0.5]
    assert found == pytest.approx(expected, abs=1e-5)


def test_the_same_text_as_without_a_record_and_after_rewinding(pair):
    session = session_of(pair)
    list(session)
    again = session_of(pair)
    list(again)
    assert session.tokens == again.tokens
    back = session.rewind(3)
    list(back)
    assert back.tokens == session.tokens
    assert [i.settings for i in back.iterations] == [i.settings for i in session.iterations]


@pytest.mark.parametrize("release", [False, True])
def test_a_fork_into_a_selector_reads_what_it_lacks(pair, release):
    plain = session_of(pair, selector="", tokens=20)
    for _ in range(2):
        plain.step()
    if release:
        plain.release()
    other = plain.fork(METHODS["delayed"].with_settings(selector="mine"))
    list(other)
    assert other.finished and other._models.features.length >= len(other.tokens) - 1
    fresh = DecodeSession(pair, other.method, plain.tokens, WARM, Limits(20, **FULL))
    assert fresh.step().settings["trunk"] == other.iterations[2].settings["trunk"]


def test_greedy_text_does_not_depend_on_the_selector(pair):
    greedy = Sampling()
    plain = DecodeSession(pair, METHODS["autoregressive"], list(session_of(pair).prompt_ids), greedy, Limits(24))
    list(plain)
    session = session_of(pair, greedy)
    list(session)
    assert session.tokens == plain.tokens


def test_a_text_of_one_token_takes_the_given_shape(pair):
    session = DecodeSession(
        pair,
        METHODS["delayed"].with_settings(selector="mine", paths=2, trunk=1, branch=2),
        [300],
        WARM,
        Limits(12, **FULL),
    )
    first = session.step()
    assert (first.settings["paths"], first.settings["trunk"], first.settings["branch"]) == (2, 1, 2)
    list(session)


@pytest.mark.slow
def test_rebuild_keeps_features(pair):
    tokens = []
    for policy in ("compaction", "rebuild"):
        session = session_of(pair, cache_policy=policy)
        list(session)
        tokens.append(session.tokens)
    assert tokens[0] == tokens[1]


@pytest.mark.slow
def test_replays_say_that_only_models_can_tell(pair, tmp_path):
    session = session_of(pair)
    list(session)
    run = session.trace()
    with pytest.raises(LogitsMissing, match="A selector reads hidden states"):
        fork(run, None, 2, ForkChange(METHODS["delayed"].with_settings(selector="mine")))
    live = fork(run, session, 2, ForkChange(sampling=Sampling(0.8, 0.95, seed=77)))
    assert live.kind == "live"
    save_run(run, tmp_path / "run.dscope")
    opened = load_run(tmp_path / "run.dscope")
    assert session_state_before(opened, 2).method.settings()["selector"] == "mine"
    drafted = next(i for i in opened.iterations if i.drafted > 2)
    search = change_search(opened, drafted.index)
    assert search.draft(search.drafter)[0].tree.size == drafted.drafted + 1


def test_another_verifier_is_refused_in_one_sentence(pair):
    with pytest.raises(SettingsError, match="trained for the verifier specinfer, not traversal: choose that verifier"):
        session_of(pair, verifier="traversal")


def test_another_pair_is_refused_in_one_sentence(pair, home):
    from decoding.selector.store import SELECTORS

    file = home / "mine" / "selector" / SELECTORS.card
    file.write_text(file.read_text().replace('"layers": 8', '"layers": 9'))
    with pytest.raises(
        PairError, match=r"The selector mine was trained for another pair with that name, and .* is loaded"
    ):
        session_of(pair)


def test_beside_a_draft_head_it_is_refused_in_one_sentence(pair, home):
    save_head(home / "head" / "head", random_network(pair, 0), "talf", pair_identity(pair), "2026-11-22T10:00:00", {})
    with pytest.raises(PairError, match=r"The selector mine was trained for Embedded pair .*, TALF head.* is loaded"):
        session_of(pair, draft_head="head")


def test_an_unknown_selector_is_refused_with_those_there_are(pair):
    with pytest.raises(SettingsError, match=r"There is no selector 'none' for selector: choose one of .*mine"):
        session_of(pair, selector="none")


def test_without_a_selector_nothing_is_new(pair):
    session = session_of(pair, selector="")
    assert "selector" not in session.method.settings() and session._models.features is None
    assert METHODS["delayed"].drafter.settings() == {"paths": 4, "trunk": 2, "branch": 4}
