"""The whole training of a pair, small: phases, resuming, prolonging, a full disk, and a pair that loads."""

from dataclasses import replace

import pytest
import torch

from decoding.common.errors import DiskError, TrainingError
from decoding.jobs.process import StoppedError, ending
from decoding.methods.methods import METHODS
from decoding.models.pair import load_pair
from decoding.models.presets import EMBEDDED, PairSettings, model_folder
from decoding.models.vocabulary import Vocabulary
from decoding.session.session import DecodeSession, Limits
from decoding.training import embedded
from decoding.training.folder import MODULES, Training, TrainingSettings
from decoding.training.loop import load_checkpoint
from decoding.training.pair_loops import LoopLearner, run_lengths
from decoding.training.pair_networks import begin_from, continuations, load_network, new_network
from decoding.training.pair_phases import DraftLearner, TargetLearner
from decoding.training.pair_tokens import load_tokenizer, save_tokenizer
from decoding.training.pair_training import (
    AGAIN,
    COOLED_CHECKPOINT,
    COOLING,
    DISTILLING,
    LOOPS,
    STEADY,
    Length,
    PairTraining,
)
from tests.helpers.full_disk import fill_disk
from tests.helpers.small_pair import SETUP, arrays_in, write_corpus

LENGTH = Length(steps=20, pause_s=1e9)
NO_SETTINGS = TrainingSettings("embedded", "small", ("-m", MODULES["embedded"]), {}, {}, "2030-01-02")


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Arrays, and a training that went through without a stop."""
    place = tmp_path_factory.mktemp("pair")
    arrays = arrays_in(place)
    return arrays, run(place / "whole", arrays)


def run(path, arrays, length=LENGTH, resume=False, setup=SETUP):
    folder = Training(path)
    if not resume:
        folder.begin(NO_SETTINGS)
        save_tokenizer_of(arrays, path)
    PairTraining(folder, arrays, length, setup).run(resume)
    return folder


@pytest.mark.slow
def test_a_trained_pair_is_trained_on_without_the_first_phases(begun, tmp_path):
    arrays, whole = begun
    longer = replace(SETUP.draft_shape, hidden_size=24, context=4096)
    setup = replace(SETUP, start_from=whole.path / "out", first=DISTILLING, draft_shape=longer)
    folder = run(tmp_path / "draft", arrays, Length(steps=3, pause_s=1e9), setup=setup)
    assert {record["phase"] for record in folder.log()} == {DISTILLING} and folder.status().done == 3
    assert weights(folder)["target"] == weights(whole)["target"]
    config = load_network(folder.path / "out" / "draft").config
    assert (config.hidden_size, config.max_position_embeddings) == (24, 4096)
    setup = replace(setup, first=LOOPS, draft_shape=SETUP.draft_shape, loops=replace(SETUP.loops, kept=0.0))
    folder = run(tmp_path / "loops", arrays, Length(steps=6, pause_s=1e9), setup=setup)
    last = {record["phase"]: record["step"] for record in folder.log()}
    assert last == {LOOPS: 3, DISTILLING: 3}, "the steps are shared by the phases that are left"
    assert weights(folder)["target"] == weights(whole)["target"], "nothing of the way was kept"
    assert weights(folder)["draft"] != weights(whole)["draft"]


def save_tokenizer_of(arrays, path):
    """Where the training would have put it."""
    save_tokenizer(arrays.tokenizer.backend_tokenizer, path / "data" / "tokenizer")


def weights(folder) -> dict[str, bytes]:
    return {role: (folder.path / "out" / role / "model.safetensors").read_bytes() for role in ("target", "draft")}


@pytest.mark.slow
def test_all_phases_are_gone_through_and_the_pair_decodes(begun):
    _, folder = begun
    records = folder.log()
    assert list(dict.fromkeys(record["phase"] for record in records)) == [STEADY, COOLING, LOOPS, DISTILLING]
    target = [record["held_out"] for record in records if record["phase"] in (STEADY, COOLING) and "held_out" in record]
    assert target[-1] < target[0] - 0.3, "held-out loss falls"
    assert any("looping_stories" in record for record in records if record["phase"] == LOOPS)
    assert any("held_out_agreement_sums" in record for record in records if record["phase"] == DISTILLING)
    assert folder.trees() and folder.status().share == 1
    pair = load_pair(
        PairSettings(str(folder.path / "out" / "target"), str(folder.path / "out" / "draft"), device="cpu")
    )
    ids = pair.vocabulary.encode("Tom saw the big tree.")
    session = DecodeSession(pair, METHODS["dynatree"], ids, limits=Limits(8, ignore_end_of_text=True))
    assert list(session) and session.new_tokens == 8


@pytest.mark.slow
@pytest.mark.parametrize(("learner", "at"), [(TargetLearner, 6), (LoopLearner, 3), (DraftLearner, 2)])
def test_a_training_that_stopped_ends_with_the_very_same_weights(begun, tmp_path, monkeypatch, learner, at):
    arrays, whole = begun
    folder, step = Training(tmp_path / "stopped"), learner.step

    def stopping(self, number, share):
        if number == at:
            folder.ask_to_stop()
        return step(self, number, share)

    monkeypatch.setattr(learner, "step", stopping)
    with pytest.raises(StoppedError), ending(folder):
        run(folder.path, arrays)
    monkeypatch.undo()
    assert folder.status().state == "stopped"
    run(folder.path, arrays, resume=True)
    assert weights(folder) == weights(whole)
    assert [record["step"] for record in folder.log() if record["phase"] == STEADY][-1] == LENGTH.plan(STEADY).steps


@pytest.mark.slow
def test_more_time_goes_on_from_the_end_of_the_steady_part(begun, tmp_path):
    arrays, whole = begun
    longer = replace(LENGTH, steps=30)
    folder = run(tmp_path / "longer", arrays)
    before = weights(folder)
    run(folder.path, arrays, length=longer, resume=True)
    at_once = run(tmp_path / "at_once", arrays, length=longer)
    assert before == weights(whole) and weights(folder) == weights(at_once) != before
    assert {record["phase"] for record in folder.log()} == {STEADY, COOLING, LOOPS, DISTILLING}


@pytest.mark.slow
def test_a_phase_is_done_again_from_where_it_began(begun, tmp_path):
    arrays, whole = begun
    folder = run(tmp_path / "again", arrays)
    for phase in AGAIN:
        PairTraining(folder, arrays, LENGTH, SETUP).run(resume=True, again=phase)
        assert weights(folder) == weights(whole), "the same settings give the same pair"
    harder = replace(SETUP, loops=replace(SETUP.loops, matrix_rate=0.01))
    PairTraining(folder, arrays, LENGTH, harder).run(resume=True, again="loops")
    assert weights(folder) != weights(whole)
    (folder.path / COOLED_CHECKPOINT).unlink()
    with pytest.raises(TrainingError, match="has not reached --again loops: resume it without"):
        PairTraining(folder, arrays, LENGTH, SETUP).run(resume=True, again="loops")


@pytest.mark.slow
def test_a_full_disk_leaves_the_checkpoint_before(begun, tmp_path, monkeypatch):
    arrays, _ = begun
    folder, step = Training(tmp_path / "full"), TargetLearner.step

    def filling(self, number, share):
        if number == 4:
            fill_disk(monkeypatch)
        return step(self, number, share)

    monkeypatch.setattr(TargetLearner, "step", filling)
    with pytest.raises(DiskError, match="is full: free some space and resume"):
        run(folder.path, arrays, length=Length(steps=20, pause_s=1e-9))
    kept = load_checkpoint(folder.checkpoint)
    assert kept.step == 4 and not list(folder.path.glob("*.part"))
    monkeypatch.undo()
    run(folder.path, arrays, resume=True)
    assert weights(folder) == weights(begun[1])


@pytest.mark.slow
def test_a_checkpoint_of_another_text_is_refused(begun, tmp_path):
    arrays, whole = begun
    other = replace(arrays, identity="other")
    with pytest.raises(TrainingError, match="belongs to another training"):
        PairTraining(whole, other, LENGTH, SETUP).run(resume=True)


@pytest.mark.slow
def test_weights_of_another_tokenizer_are_taken_over_by_spelling(begun, tmp_path):
    arrays, whole = begun
    source = whole.path / "out" / "target"
    network = new_network(SETUP.target_shape, len(arrays.tokenizer), seed=9)
    assert begin_from(network, source, arrays.tokenizer) == len(arrays.tokenizer), "all are spelled alike"
    for name, tensor in load_network(source).state_dict().items():
        torch.testing.assert_close(network.state_dict()[name], tensor)
    wide = new_network(replace(SETUP.target_shape, hidden_size=64), len(arrays.tokenizer), seed=9)
    with pytest.raises(TrainingError, match="has another shape"):
        begin_from(wide, source, arrays.tokenizer)
    with pytest.raises(TrainingError, match="has no network"):
        begin_from(network, tmp_path, arrays.tokenizer)


@pytest.mark.slow
def test_a_token_that_is_not_there_begins_as_the_mean_of_what_it_was_spelled_with(begun, tmp_path):
    arrays, _ = begun
    shipped = model_folder(EMBEDDED, "target")
    network = new_network(replace(SETUP.target_shape, hidden_size=320, layers=8, heads=4), len(arrays.tokenizer), 0)
    alike = begin_from(network, shipped, arrays.tokenizer)
    theirs, mine = Vocabulary(load_tokenizer(shipped), 4096), Vocabulary(arrays.tokenizer, len(arrays.tokenizer))
    known = {theirs.text(number) for number in range(4096)}
    strange = next(number for number in range(mine.size) if mine.text(number) not in known)
    assert 256 < alike < mine.size
    rows, old = network.gpt_neox.embed_in.weight, load_network(shipped).gpt_neox.embed_in.weight
    torch.testing.assert_close(rows[strange], old[theirs.encode(mine.text(strange))].mean(0))


@pytest.mark.slow
def test_the_command_trains_a_pair_and_goes_on(tmp_path, monkeypatch, capsys):
    corpus, out = write_corpus(tmp_path / "texts"), tmp_path / "out"
    monkeypatch.setattr(embedded, "setup_of", lambda asked: replace(SETUP, seed=asked["seed"]))
    assert embedded.main([str(corpus), "--steps", "8", "--out", str(out), "--seed", "3"]) == 0
    assert "--target" in capsys.readouterr().out
    folder = Training(out)
    assert folder.status().state == "finished"
    settings = folder.settings()
    assert settings.command == ("-m", MODULES["embedded"], str(corpus), "--seed", "3", "--steps", "8")
    first = weights(folder)
    assert embedded.main(["--out", str(out), "--resume", "--steps", "12"]) == 0
    assert folder.settings().settings["steps"] == 12 and folder.settings().settings["seed"] == 3
    assert weights(folder) != first
    assert embedded.main([str(corpus), "--steps", "8", "--out", str(out)]) == 2
    assert "has a training already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere", "--steps", "1"], "There is no folder nowhere"),
        (["--steps", "1"], "Give a folder"),
        (["nowhere", "--first", "draft"], "name its folder in --start-from"),
        (["nowhere", "--draft", "100x2"], "A draft 100x2 is no shape: give a multiple of 64"),
        (["--resume"], "Name the training"),
        (["--resume", "--out", "nowhere"], "has no training"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_leaves_no_folder(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path / "home"))
    assert embedded.main(words) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "home").exists()


@pytest.mark.slow
def test_loops_are_unlearned(begun):
    """What the network repeats of its own text becomes less likely, and ordinary text no less likely."""
    arrays, _ = begun
    network = new_network(SETUP.target_shape, len(arrays.tokenizer), seed=0)
    settings = replace(SETUP.loops, rows=8, matrix_rate=0.02, other_rate=3e-3, anchor=0.5)
    learner = LoopLearner(network, network.state_dict(), arrays, settings, 0)
    prompts = torch.from_numpy(arrays.held_out_rows("stories", 8, 8))

    def repeated() -> float:
        """Share of the greedy text that repeats 4 tokens."""
        return (run_lengths(continuations(network, prompts, 40).numpy()) >= 4).mean()

    before, loss = repeated(), learner.evaluate()["held_out"]
    names = set()
    for step in range(30):
        names |= set(learner.step(step, 0.0))
    assert names == {"loss", "divergence_loss", "unlikelihood_loss", "looping", "gradient_norm"}
    assert before > 0.8 and repeated() < before - 0.15
    assert learner.evaluate()["held_out"] < loss + 0.1
