"""Kept matrices: made once, read back to the bit, and recorded so that whatever goes on with a run begins with them."""

import json
import shutil
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from benchmarks import reasons
from benchmarks.enumeration import Tables, bias, emitted_distribution
from decoding import recycle
from decoding.common import matrix_store as store
from decoding.common.errors import PairError, PromptError, SettingsError
from decoding.common.prompts import Prompt
from decoding.drafters import TokenRecyclingDrafter
from decoding.methods.methods import METHODS
from decoding.models.pair import pair_identity
from decoding.replay.forks import ForkChange, fork
from decoding.replay.stored_state import state_before
from decoding.session.session import DecodeSession, Limits
from decoding.trace.run_file import load_run, save_run
from decoding.verifiers import NSSVerifier

METHOD, TEXT = METHODS["token_recycling"], "Once upon a time there was a dog. The dog ran to"
STORIES = [
    Prompt("mine", "cat", "Once upon a time there was a cat. The cat ran to"),
    Prompt("mine", "boy", "One day a boy saw a big dog. The boy"),
]
TARGET = {"name": "t", "parameters": 1, "layers": 1, "vocab_size": 50, "weights": "1"}
PAIR = {"name": "p", "target": TARGET, "draft": TARGET}


@pytest.fixture(scope="module")
def made(embedded, tmp_path_factory):
    """A folder of trainings with the matrix `mine`, and what it holds."""
    home = tmp_path_factory.mktemp("home")
    matrix, tokens = recycle.recycled(embedded, STORIES, 24)
    counts = {"prompts": 2, "tokens": tokens}
    store.save_matrix(home / "mine" / "matrix", matrix, pair_identity(embedded), "2030-01-02T03:04:05", "", counts)
    return home, matrix, tokens


@pytest.fixture(autouse=True)
def home(made, tmp_path, monkeypatch):
    """A copy of it that a test may damage."""
    shutil.copytree(made[0], tmp_path / "home")
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path / "home"))
    return tmp_path / "home"


def session_of(pair, matrix="mine", method=None, **settings):
    method = method or METHOD.with_settings(matrix=matrix, **settings)
    return DecodeSession(pair, method, pair.vocabulary.encode(TEXT), limits=Limits(24, rows="full"))


def decoded(session):
    list(session)
    return session


def trees(iterations):
    return [[(node.parent_id, node.token_id, node.draft_probability) for node in each.nodes] for each in iterations]


def same(one, other) -> bool:
    rows = [zip(one[token], other[token], strict=True) for token in one] if one.keys() == other.keys() else [[(0, 1)]]
    return all(np.array_equal(a, b) and a.dtype == b.dtype for row in rows for a, b in row)


def rewrite(home, **changes):
    card = home / "mine" / "matrix" / "matrix.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | changes))


def test_it_is_read_back_to_the_bit_and_described(made, home):
    _, matrix, tokens = made
    card = store.find_matrix("mine")
    assert same(store.load_matrix("mine"), matrix) and same(store.load_matrix(card.full_name), matrix)
    assert card.counts == {"prompts": 2, "tokens": tokens, "rows": len(matrix)} and 24 < tokens <= 48
    assert card.words == f"mine, {tokens} tokens of embedded-target, 2030-01-02" and store.all_matrices() == [card]
    assert {len(ids) for ids, _ in matrix.values()} == {store.CANDIDATES}
    assert {(ids.dtype, probs.dtype) for ids, probs in matrix.values()} == {(np.dtype("i4"), np.dtype("f4"))}
    store.save_matrix(home / "again" / "matrix", dict(reversed(matrix.items())), card.pair, "now", "", card.counts)
    assert store.find_matrix("again").digest == card.digest, "the same rows are the same file"


def test_a_prompt_goes_on_from_the_one_before(embedded, made):
    first, _ = recycle.recycled(embedded, STORIES[:1], 24)
    both, _ = recycle.recycled(embedded, STORIES[1:], 24, first)
    assert same(both, made[1]) and not same(first, both) and set(first) < set(both)


def test_a_run_with_it_is_one_whose_matrix_was_carried_over_by_hand(pair, made):
    @dataclass(frozen=True)
    class ByHand(TokenRecyclingDrafter):
        known: dict = field(default_factory=dict, compare=False)

        def start(self, prompt_ids):
            return self.known

    by_hand = decoded(session_of(pair, method=replace(METHOD, drafter=ByHand(known=made[1]))))
    kept, empty = decoded(session_of(pair)), decoded(session_of(pair, ""))
    assert kept.tokens == by_hand.tokens == empty.tokens
    assert trees(kept.iterations) == trees(by_hand.iterations) != trees(empty.iterations)
    assert len(kept.iterations) < len(empty.iterations) and kept.iterations[0].drafted > 0
    assert "matrix" not in empty.trace().settings and "matrix" not in empty.iterations[0].settings
    full_name = store.find_matrix("mine").full_name
    assert kept.trace().settings["matrix"] == kept.iterations[0].settings["matrix"] == full_name


@pytest.mark.slow
def test_saved_forked_and_rewound_runs_begin_with_it(pair, tmp_path):
    session = decoded(session_of(pair))
    save_run(session.trace(), tmp_path / "run.dscope")
    opened = load_run(tmp_path / "run.dscope")
    for index in range(len(opened.iterations)):
        assert same(state_before(opened, index, session.method), session.standing(index).state)
    for index in (0, 1):
        assert trees(decoded(session.rewind(index)).iterations) == trees(session.iterations)
    changed = METHOD.with_settings(matrix="mine", node_budget=8)
    live = session.rewind(1).fork(changed)
    assert live.step().drafted <= 8 and same(live.standing(1).state, session.standing(1).state)
    empty = session.rewind(1).fork(METHOD.with_settings(matrix="", node_budget=8))
    assert empty.step().drafted == 0 and empty.standing(1).state == {}, "another matrix begins anew"
    replayed = fork(opened, None, 1, ForkChange(METHOD.with_settings(matrix=session.method.settings()["matrix"])))
    assert trees(replayed.trace.iterations) == trees(session.iterations[: len(replayed.trace.iterations)])


@pytest.mark.slow
def test_a_run_says_that_its_matrix_is_gone_or_another(pair, made, home, tmp_path):
    session = decoded(session_of(pair))
    save_run(session.trace(), tmp_path / "run.dscope")
    opened, full_name = load_run(tmp_path / "run.dscope"), store.find_matrix("mine").full_name
    shutil.rmtree(home / "mine")
    with pytest.raises(
        SettingsError, match=rf"There is no matrix '{full_name.split(':')[0]}' .*: leave it empty, or make"
    ):
        state_before(opened, 1, session.method)
    few = dict(list(made[1].items())[:9])
    store.save_matrix(home / "mine" / "matrix", few, pair_identity(pair), "now", "", {"prompts": 1, "tokens": 9})
    for act in (lambda: state_before(opened, 1, session.method), lambda: session_of(pair, full_name)):
        with pytest.raises(
            SettingsError, match=f"mine here is another one, .* instead of {full_name.split(':')[1]}: put"
        ):
            act()
    assert session_of(pair).method.settings()["matrix"] != full_name


def test_a_foreign_one_is_refused_in_one_sentence(pair, home):
    target = store.find_matrix("mine").pair["target"]
    rewrite(home, pair={"name": "p", "target": target | {"weights": "0.5"}})
    with pytest.raises(
        PairError, match=r"^The matrix mine was made with another target with that name, and \S+ is loaded"
    ):
        session_of(pair)
    rewrite(home, pair={"name": "p", "target": target | {"name": "other", "layers": 9}})
    with pytest.raises(
        PairError, match=r"^The matrix mine was made with other, and embedded-target is loaded: load its"
    ):
        session_of(pair)


def test_damaged_ones_are_refused_in_one_sentence(home, made):
    folder = home / "mine" / "matrix"
    sentence = r"^The matrix in \S+ is damaged \(matrix\.safetensors {}\): make it again, or leave matrix empty\.$"
    content = (folder / "matrix.safetensors").read_bytes()

    def refused(words):
        with pytest.raises(PairError, match=sentence.format(words)):
            store.load_matrix("mine")

    (folder / "matrix.safetensors").write_bytes(content[:-1])
    refused("is not the one that matrix.json describes")
    rewrite(home, digest=store._digest(content[:-1]))
    refused("holds no matrix")
    for row in ((7, 1.5), (7, np.nan), (4096, 0.5)):
        matrix = made[1] | {3: (np.array([row[0]], np.int32), np.array([row[1]], np.float32))}
        card = json.loads((folder / "matrix.json").read_text())
        store.save_matrix(folder, matrix, card["pair"], "now", "", {"prompts": 1, "tokens": 9})
        refused("holds what is no id or no probability")
    (folder / "matrix.safetensors").unlink()
    with pytest.raises(PairError, match=r"matrix\.safetensors: No such file"):
        store.load_matrix("mine")
    rewrite(home, counts={})
    with pytest.raises(PairError, match=r"matrix\.json does not describe a matrix\): make it again"):
        store.find_matrix("mine")
    assert store.all_matrices() == []


def tiny(home, random, size):
    """A matrix `tiny` with candidates for half of so many tokens; returns what the second rule would know."""
    learned = {token: random.dirichlet(np.ones(size)).astype(np.float32) for token in range(0, size, 2)}
    best = {token: np.argsort(-said, kind="stable")[: store.CANDIDATES] for token, said in learned.items()}
    matrix = {token: (ids.astype(np.int32), learned[token][ids]) for token, ids in best.items()}
    shutil.rmtree(home / "tiny", ignore_errors=True)
    store.save_matrix(home / "tiny" / "matrix", matrix, PAIR, "now", "", {"prompts": 1, "tokens": 9})
    return learned


@pytest.mark.parametrize("seed", range(12))
def test_the_second_rule_recomputes_the_reasons_of_runs_with_it(seed, home):
    random, found = np.random.default_rng(seed), reasons.FalseReason()
    drafter = TokenRecyclingDrafter(int(random.integers(4, 60)), 4, 6, "tiny")
    learned = tiny(home, random, 17)  # no table of the check has fewer tokens
    reasons.check_drafter("token_recycling", drafter, seed, random, found, learned)
    assert found.wrong == [] and found.nodes["token_recycling"] > 1
    if seed == 0:  # the check can fail: without the matrix the rule expects roots that were never read
        reasons.check_drafter("token_recycling", drafter, seed, np.random.default_rng(seed), found)
        assert found.wrong


def test_lossless_whatever_it_holds(home):
    tiny(home, np.random.default_rng(3), 3)
    tables = Tables("near", {(): [0.6, 0.3, 0.1]}, {(): [0.2, 0.3, 0.5]}, [0.1, 0.4, 0.5], [0.5, 0.25, 0.25])
    drafter = TokenRecyclingDrafter(9, 3, 2, "tiny")
    assert len(drafter.start([])) == 2
    assert bias(emitted_distribution(drafter, NSSVerifier(), tables), tables) < 1e-9


@pytest.mark.slow
def test_the_command_makes_keeps_and_goes_on(home, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "prompts"
    folder.mkdir()
    for prompt in STORIES:
        (folder / f"{prompt.name}.txt").write_text(prompt.text)
    words = ["--prompts", str(folder), "--max-new-tokens", "8", "--name"]
    assert recycle.main([*words, "new"]) == 0
    first = store.find_matrix("new")
    assert f"{first.full_name}: {first.counts['rows']:,} rows from 16 tokens of 2 prompts" in capsys.readouterr().out
    assert recycle.main([*words, "more", "--from", "new"]) == 0
    more = store.find_matrix("more")
    assert more.begun == first.full_name and more.counts["tokens"] == 32 and more.counts["rows"] >= first.counts["rows"]
    for name, sentence in (
        ("new", "new is already there, and a matrix is never changed: choose another --name."),
        ("a b", "A matrix needs a name of letters, digits, '.', '_' and '-', not 'a b'."),
        ("third", "There is no matrix 'gone' for matrix: choose one of"),
    ):
        capsys.readouterr()
        assert recycle.main([*words, name, "--from", "gone"]) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: ") and sentence in said and said.count("\n") == 1
    monkeypatch.setattr(recycle, "recycled", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert recycle.main([*words, "third"]) == 1 and not (home / "third").exists()
    assert capsys.readouterr().err.endswith("error: Interrupted: no matrix was kept.\n")


def test_a_prompt_that_does_not_fit_is_named_before_anything_is_decoded(pair, monkeypatch):
    monkeypatch.setattr(DecodeSession, "step", None)
    with pytest.raises(PromptError, match=r"^mine/long: .* exceed the context of \d+: request at most"):
        recycle.recycled(pair, [*STORIES, Prompt("mine", "long", "a dog " * 1200)], 300)
