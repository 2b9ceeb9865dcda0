"""Preparing data and training heads: what is a function of its number, what resumes, and what is refused."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks.fakes import make_pair
from decoding.common.errors import DiskError, DraftscopeError, SettingsError, TrainingError
from decoding.heads.network import HeadConfig, HeadNetwork
from decoding.heads.store import find_head, load_network
from decoding.jobs.process import StoppedError
from decoding.methods.methods import METHODS
from decoding.models.pair import PairSettings, load_pair
from decoding.session.session import DecodeSession, Limits
from decoding.training import head, head_comparison, head_learner, head_suite
from decoding.training.folder import Training
from decoding.training.head_comparison import expected_tokens
from decoding.training.head_data import SHARD_WINDOWS, example_of, open_prepared, prepare_text, prepare_trees
from decoding.training.head_learner import HeadLearner, HeadSettings, batch_of, rate_factor
from decoding.training.head_losses import LOSS_OF, Weights, hass_loss
from decoding.training.text import Texts, WindowPlan, continue_texts, read_corpus, windows_of
from tests.helpers.full_disk import fill_disk

WORDS = ("the cat sat on a mat and looked at the rain", "one day a small boat went out to sea", "two and two is four")
TEXTS = Texts({"a": (" ".join(WORDS * 20),), "b": (" ".join(WORDS[::-1] * 20),)}, {"a": (" ".join(WORDS * 9),)})
PLAN = WindowPlan(windows=3, held_out=2, roots=8, depth=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pair")


@pytest.fixture(scope="module")
def pair(folder):
    target, draft = make_pair(folder, "gpt_neox", sharpness=2.0)
    return load_pair(PairSettings(str(target), str(draft), device="cpu", dtype="float32", context_length=256))


@pytest.fixture(scope="module", autouse=True)
def short_looks():
    """Curves and trees of few tokens: a random pair is slow at being wrong."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("PROMPTS", 1), ("WRITTEN_TOKENS", 3), ("TREE_TOKENS", 2)):
            patch.setattr(head_learner, name, value)
        patch.setattr(head_comparison, "COMPARED_TOKENS", 3)
        yield


def quiet(*_):
    pass


def stopping(done, _total):
    if done:
        raise StoppedError("Stopped.")


def test_a_window_is_a_function_of_its_number(pair):
    several = windows_of(pair, TEXTS, PLAN, range(4))
    assert several.shape == (4, PLAN.size)
    for number in range(4):
        assert np.array_equal(windows_of(pair, TEXTS, PLAN, [number])[0], several[number])
    assert not np.array_equal(windows_of(pair, TEXTS, PLAN, [0], held_out=True)[0], several[0])


def test_texts_that_are_continued_together_do_not_see_each_other(pair):
    begun = [[5, 6, 7], [8], [9, 10, 11, 12, 13, 14, 15, 16]]
    together, alone = [list(text) for text in begun], [list(text) for text in begun]
    continue_texts(pair.target, together, 7, 0.8, [np.random.default_rng(n) for n in range(3)])
    for number, text in enumerate(alone):
        continue_texts(pair.target, [text], 7, 0.8, [np.random.default_rng(number)])
    assert together == alone and [len(text) for text in together] == [7, 7, 8]


def test_prompts_only_begin_a_window(pair):
    texts = Texts({"a": ("two and two",)}, {"a": ("three",)}, prompts=True)
    windows = windows_of(pair, texts, PLAN, [0, 1])
    begun = pair.vocabulary.encode("two and two")
    assert windows[:, : len(begun)].tolist() == [begun, begun] and windows[0].tolist() != windows[1].tolist()


def test_a_preparation_goes_on_where_it_was(pair, tmp_path):
    data = open_prepared(tmp_path / "data", pair, PLAN, "text")
    with pytest.raises(StoppedError):
        prepare_text(data, pair, TEXTS, stopping)
    first = data.shard("held_out", "text", 0)
    written = first.stat().st_mtime_ns
    prepare_text(data, pair, TEXTS, quiet)
    prepare_trees(data, pair, 2, quiet)
    assert first.stat().st_mtime_ns == written
    text, trees = data.text("train", [2, 0], torch.device("cpu")), data.trees("train", [2], 2, torch.device("cpu"))
    assert text.tokens.tolist() == windows_of(pair, TEXTS, PLAN, [2, 0]).tolist()
    assert trees.tokens.shape == (1, 2, 8, 2) and trees.labels.shape == (1, 2, 8, 2, 64) and text.roots == 8


def test_soft_labels_in_16_bits_give_the_targets_distributions(pair, tmp_path):
    data = open_prepared(tmp_path, pair, PLAN, "text")
    prepare_text(data, pair, TEXTS, quiet)
    text = data.text("train", [0], torch.device("cpu"))
    probs = torch.softmax(pair.target.engine.project(text.features[0]), -1)
    exact = torch.softmax(pair.target.network(text.tokens).logits[0], -1)
    assert float((probs - exact).abs().sum(-1).max()) < 5e-3


def test_more_windows_go_behind_those_that_are_there(pair, tmp_path):
    prepare_text(open_prepared(tmp_path, pair, PLAN, "text"), pair, TEXTS, quiet)
    more = WindowPlan(windows=SHARD_WINDOWS + 1, held_out=2, roots=8, depth=3)
    data = open_prepared(tmp_path, pair, more, "text")
    prepare_text(data, pair, TEXTS, quiet)
    assert data.text("train", [0, SHARD_WINDOWS], torch.device("cpu")).tokens.shape == (2, 11)


@pytest.mark.parametrize("name", ["roots", "seed"])
def test_data_of_another_plan_are_refused(pair, tmp_path, name):
    open_prepared(tmp_path, pair, PLAN, "text")
    with pytest.raises(TrainingError, match=f"prepared for a different {name} .* --prepared"):
        open_prepared(tmp_path, pair, replace(PLAN, **{name: 9}), "text")


def test_data_of_another_target_or_text_are_refused(pair, tmp_path):
    open_prepared(tmp_path, pair, PLAN, "text")
    with pytest.raises(TrainingError, match="prepared for a different text "):
        open_prepared(tmp_path, pair, PLAN, "other")
    manifest = tmp_path / "manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**content, "target": {**content["target"], "weights": "0.5"}}))
    with pytest.raises(TrainingError, match="prepared for a different target "):
        open_prepared(tmp_path, pair, PLAN, "text")
    manifest.write_text("{")
    with pytest.raises(TrainingError, match="cannot be read"):
        open_prepared(tmp_path, pair, PLAN, "text")
    manifest.unlink()
    (tmp_path / "letter.txt").write_text("x")
    with pytest.raises(TrainingError, match="contains other files"):
        open_prepared(tmp_path, pair, PLAN, "text")
    assert (tmp_path / "letter.txt").read_text() == "x"


def test_a_full_disk_is_one_sentence_and_nothing_is_lost(pair, tmp_path, monkeypatch):
    data = open_prepared(tmp_path, pair, PLAN, "text")
    with monkeypatch.context() as patch:
        fill_disk(patch, after=1)
        with pytest.raises(DiskError, match=r"is full: free some space and resume; nothing is lost\."):
            prepare_text(data, pair, TEXTS, quiet)
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["held_out-text-00000.safetensors", "manifest.json"]
    prepare_text(data, pair, TEXTS, quiet)


def test_a_missing_or_damaged_shard_is_reported(pair, tmp_path):
    data = open_prepared(tmp_path, pair, PLAN, "text")
    with pytest.raises(TrainingError, match="is missing: prepare the data again"):
        data.text("train", [0], torch.device("cpu"))
    data.shard("train", "text", 0).write_bytes(b"no tensors")
    with pytest.raises(TrainingError, match=r"is damaged .*: delete it"):
        data.text("train", [0], torch.device("cpu"))


def test_an_example_is_the_text_and_the_tree_of_one_root(pair, tmp_path):
    data = open_prepared(tmp_path, pair, PLAN, "text")
    prepare_text(data, pair, TEXTS, quiet)
    prepare_trees(data, pair, 2, quiet)
    found, tokens = example_of(data, pair, 2), data.text("train", [0], torch.device("cpu")).tokens[0].tolist()
    texts, trees = [pair.vocabulary.text(token) for token in tokens], data.trees("train", [0], 2, torch.device("cpu"))
    levels = [[[[pair.vocabulary.text(int(token)), int(parent)] for token, parent in zip(*both, strict=True)]
               for both in zip(trees.tokens[0, :, root], trees.parents[0, :, root], strict=True)]
              for root in range(8)]  # fmt: skip
    root = levels.index(found["tree"])
    assert found["text"] == texts[max(0, root - 4) : root + 2] and found["chain"] == texts[root + 2 : root + 4]


def test_expected_tokens_are_those_of_node_by_node_sampling():
    """1 + 0.5 + 0.25 below the root, and 0.5 x 0.4 below the first: what is not verified counts for nothing."""

    def node(place, parent, probability, flat):
        return SimpleNamespace(node_id=place, parent_id=parent, target_probability=probability, flat_index=flat)

    nodes = [node(0, -1, None, 0), node(1, 0, 0.5, 1), node(2, 0, 0.25, 2), node(3, 1, 0.4, 3), node(4, 1, 0.3, None)]
    assert expected_tokens(SimpleNamespace(nodes=nodes)) == pytest.approx(1.95)


@pytest.mark.slow
def test_weights_of_the_losses_are_settings_of_the_command(trained, folder, monkeypatch, capsys):
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(trained))
    words = ("--loss", "hass", "--steps", "1", "--out", str(trained / "weighed"))
    with monkeypatch.context() as patch:
        seen = []
        patch.setitem(LOSS_OF, "hass", lambda head, sides, text, weights: seen.append(weights) or hass_loss(
            head, sides, text, weights))  # fmt: skip
        weights = ("--regression", "2", "--classification", "3", "--distillation", "4", "--distilled-tokens", "5")
        assert command(folder, *words, *weights) == 0
    assert seen == [Weights(2.0, 3.0, 4.0, 5)]
    assert command(folder, *words, "--resume") == 1 and "another training (weights" in capsys.readouterr().err
    assert command(folder, "--loss", "hass", "--steps", "1", "--regression", "-1") == 2
    assert "The weight of regression is -1.0: give 0 or more." in capsys.readouterr().err


def test_batches_are_a_function_of_seed_and_number():
    epoch = [window for number in range(5) for window in batch_of(10, 2, 7, number)]
    assert sorted(epoch) == list(range(10))
    assert batch_of(10, 4, 7, 2) == [*epoch[8:], *batch_of(10, 2, 7, 5)], "a batch may lie in two epochs"
    assert batch_of(10, 4, 7, 1) != batch_of(10, 4, 8, 1)
    assert len(batch_of(3, 8, 0, 0)) == 8


def test_the_learning_rate_rises_and_falls():
    rates = [rate_factor(share, 0.1) for share in (0.0, 0.05, 0.1, 0.55, 1.0)]
    assert rates == pytest.approx([0.01, 0.5, 1.0, 0.5, 0.0])


@pytest.mark.parametrize("changes", [{"loss": "l2"}, {"top_k": 0}, {"batch": 0}, {"learning_rate": 0.0}])
def test_settings_out_of_range_are_refused(changes):
    with pytest.raises(SettingsError):
        HeadSettings(**changes)


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@pytest.mark.parametrize("loss", ["talf", pytest.param("hass", marks=pytest.mark.slow)])
def test_a_training_that_went_on_ends_with_the_same_weights(pair, tmp_path, loss):
    data = open_prepared(tmp_path, pair, PLAN, "text")
    prepare_text(data, pair, TEXTS, quiet)
    prepare_trees(data, pair, 2, quiet)

    def learner():
        network = HeadNetwork(HeadConfig.of(64, pair.logits_size, 64), torch.Generator().manual_seed(0))
        return HeadLearner(pair, network, data, HeadSettings(loss, 2, batch=2, learning_rate=0.01), 2)

    whole, first, second = learner(), learner(), learner()
    losses = [whole.step(number, number / 4)["loss"] for number in range(4)]
    for number in range(2):
        first.step(number, number / 4)
    first.evaluate(), first.tree()  # looking up changes nothing
    second.load_state(first.state())
    assert [second.step(number, number / 4)["loss"] for number in (2, 3)] == losses[2:]
    for name, weight in whole.network.state_dict().items():
        assert torch.equal(weight, second.network.state_dict()[name]), name


@pytest.fixture(scope="module")
def trained(folder, pair, tmp_path_factory):
    """A head trained by the command on the sample prompts, in a home of its own."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTSCOPE_TRAINING", str(home))
        assert command(folder, "--loss", "eagle", "--steps", "3", "--out", str(home / "first")) == 0
    return home


def command(folder: Path, *words: str) -> int:
    pair = ("--target", str(folder / "target"), "--draft", str(folder / "draft"), "--device", "cpu")
    data = ("--windows", "3", "--held-out", "2", "--roots", "8", "--batch", "2", "--context-length", "256")
    return head.main([*pair, *data, *words])


def test_the_command_leaves_a_head_that_drafts_without_changing_the_text(trained, pair, monkeypatch):
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(trained))
    status, card = Training(trained / "first").status(), find_head("first")
    assert (status.state, status.done, card.loss, card.figures["steps"]) == ("finished", 3, "eagle", 3.0)
    records = Training(trained / "first").log()
    assert {"held_out_overlap_1", "held_out_overlap_3", "held_out_tokens_per_pass"} <= set().union(*records)
    assert Training(trained / "first").trees()
    assert card.figures["held_out_tokens_at_16_nodes"] >= 1.0 and "held_out_tokens_at_16_nodes_error" in card.figures
    example = json.loads((trained / "first" / "example.json").read_text())
    assert [len(level) for level in example["tree"]] == [4, 4] and len(example["chain"]) == 2
    assert len(card.frequent) > 8 and find_head(f"first@{len(card.frequent)}").tokens == len(card.frequent)
    prompt = pair.vocabulary.encode("Once upon a time")
    texts = []
    for method in (METHODS["autoregressive"], METHODS["salf"].with_settings(draft_head="first", node_budget=8)):
        session = DecodeSession(pair, method, prompt, limits=Limits(12, ignore_end_of_text=True))
        list(session)
        texts.append(session.tokens)
    assert texts[0] == texts[1]


def test_heads_are_compared_on_the_same_held_out_windows(trained, folder, pair, tmp_path, monkeypatch, capsys):
    """Two copies of one head gain nothing over each other; nothing is trained, and the windows are those held out."""
    texts, seen = tmp_path / "texts", []
    texts.mkdir()
    (texts / "a.txt").write_text("\n".join(f"{WORDS[number % 3]} {number}" for number in range(2000)))
    for name in ("eagle", "hass"):
        shutil.copytree(trained / "first" / "head", tmp_path / "suite" / name / "head")
    measured = head_suite.tokens_by_window
    monkeypatch.setattr(
        head_suite, "tokens_by_window", lambda *words: seen.append(list(words[2])) or measured(*words[:2], seen[-1])
    )
    monkeypatch.setattr(head_suite, "SHIPPED", tmp_path / "shipped")
    words = ("--target", str(folder / "target"), "--draft", str(folder / "draft"), "--context-length", "256")
    words += ("--device", "cpu", "--roots", "24", "--corpus", str(texts), "--out", str(tmp_path / "suite"))
    assert head_suite.main(["--evaluate", "3", *words, "--ship"]) == 0
    plan = WindowPlan(roots=24, continued=0.0)
    held_out = windows_of(pair, read_corpus(texts), plan, range(3), held_out=True)
    assert len(seen) == 2 and all(np.array_equal(np.stack(each), held_out) for each in seen)
    found = json.loads((tmp_path / "shipped" / "same_windows.json").read_text())["heads"]
    assert found["hass"]["gained"] == found["hass"]["gained_error"] == 0.0 and "gained" not in found["eagle"]
    assert found["hass"]["tokens"] == found["eagle"]["tokens"] >= 1.0 and found["eagle"]["error"] > 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["eagle", "hass"]


def test_a_command_that_was_stopped_ends_with_the_same_bytes(trained, folder, monkeypatch):
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(trained))
    words = ("--loss", "eagle", "--steps", "3", "--out", str(trained / "parted"))
    with monkeypatch.context() as patch:
        step = HeadLearner.step

        def stopping(self, number, share):
            if number == 1:
                signal.raise_signal(signal.SIGTERM)
            return step(self, number, share)

        patch.setattr(HeadLearner, "step", stopping)
        assert command(folder, *words) == 1
    status = Training(trained / "parted").status()
    assert (status.state, status.done) == ("stopped", 2)
    assert command(folder, *words, "--resume") == 0
    whole, parted = (trained / name / "head" / "head.safetensors.xz" for name in ("first", "parted"))
    assert whole.read_bytes() == parted.read_bytes()


@pytest.mark.slow
def test_a_head_goes_on_from_another_and_the_command_resumes(trained, folder, monkeypatch, capsys):
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(trained))
    out = trained / "second"
    words = (
        "--loss",
        "talf",
        "--top-k",
        "2",
        "--start-from",
        "first",
        "--steps",
        "2",
        "--out",
        str(out),
        "--learning-rate",
        "0.05",
    )
    monkeypatch.setattr(
        Training, "asked_to_stop", lambda self: (self.path / "settings.json").exists() and not self.log()
    )
    assert command(folder, *words) == 1, "stopped while it prepared"
    assert Training(out).status().state == "stopped" and not (out / "head").exists()
    monkeypatch.undo()
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(trained))
    reported = Training(out).settings().command
    assert reported[:2] == ("-m", "decoding.training.head") and str(out) not in reported
    assert head.main([*reported[2:], "--out", str(out), "--resume"]) == 0
    before, after = load_network(find_head("first")), load_network(find_head("second"))
    assert before.config == after.config and not torch.equal(before.fc.weight, after.fc.weight)
    assert find_head("second").figures["top_k"] == 2.0
    assert command(folder, *words) == 2 and "has a training already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--resume",), "Name the training run to resume"),
        (("--resume", "--out", "{home}/nowhere"), "has no training"),
        (("--corpus", "{home}/nothing"), "There is no folder"),
        (("--start-from", "nobody"), "There is no draft head 'nobody' for draft_head: choose one of"),
        (("--top-k", "0"), "top_k must be from 1 to 64"),
        (("--minutes", "0"), "minutes must be above 0"),
        (("--continued", "2"), "continued must be from 0 to 1"),
        (("--roots", "256"), "Windows of 259 tokens do not fit the context of 256"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(trained, folder, monkeypatch, capsys, words, said):
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(trained))
    assert command(folder, *(word.format(home=trained) for word in words)) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and said in errors[0]
    assert not list(trained.glob("head-*")), "nothing is begun"


def test_a_target_without_hidden_states_is_refused(trained, folder, monkeypatch, capsys):
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(trained))
    monkeypatch.setattr("decoding.engines.base.OutputHead._found", lambda *_: None)
    assert command(folder) == 2
    assert "gives no hidden states before its output head" in capsys.readouterr().err
    assert not list(trained.glob("head-*"))


def test_a_head_of_another_target_is_refused(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(trained))
    make_pair(tmp_path, "gpt_neox", seed=9)
    assert command(tmp_path, "--start-from", "first") == 2
    assert "was trained for another target" in capsys.readouterr().err


def test_a_checkpoint_of_another_training_is_refused(trained, folder, tmp_path, capsys):
    out = shutil.copytree(trained / "first", tmp_path / "first")
    weights = (out / "head" / "head.safetensors.xz").read_bytes()
    words = ("--loss", "eagle", "--steps", "3", "--learning-rate", "0.5", "--out", str(out), "--resume")
    assert command(folder, *words) == 1
    assert "belongs to another training (learning_rate" in capsys.readouterr().err
    assert (out / "head" / "head.safetensors.xz").read_bytes() == weights


def test_texts_without_anything_held_out_are_refused(pair, tmp_path):
    with pytest.raises(DraftscopeError, match="held out"):
        prepare_text(open_prepared(tmp_path, pair, PLAN, "t"), pair, Texts({"a": ("x y z " * 99,)}, {}), quiet)
