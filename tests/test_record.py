"""The recording command: any method into one file, atomically, and every wrong wish in one sentence."""

from pathlib import Path

import pytest

from decoding import record as command
from decoding.common.errors import OutOfMemoryError
from decoding.methods.methods import METHODS
from decoding.record import chosen_method, main
from decoding.sampling.sampling import Sampling
from decoding.trace.run_file import load_run

FEW = ["--max-new-tokens", "6", "--warm-up", "0"]


def recorded(tmp_path: Path, *arguments: str) -> list[str]:
    """Arguments with a prompt and a place in front."""
    return ["--prompt", "Once upon a time", "--out", str(tmp_path / "run.dscope"), *FEW, *arguments]


def refused(capsys: pytest.CaptureFixture, arguments: list[str], code: int = 2) -> str:
    """The sentence that a wish is refused with."""
    assert main(arguments) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert lines[0].endswith((".", "?"))
    return lines[0]


def test_a_run_is_recorded_and_opens(tmp_path: Path, capsys: pytest.CaptureFixture):
    arguments = recorded(tmp_path, "--method", "dynatree:base_depth=4", "--seed", "3", "--rows", "full")
    assert main(arguments) == 0
    reported = capsys.readouterr()
    assert "6 tokens" in reported.out
    assert "loading the pair" in reported.err
    run = load_run(tmp_path / "run.dscope")
    assert "".join(run.prompt_texts) == "Once upon a time"
    assert (run.settings["base_depth"], run.sampling.seed, run.totals.new_tokens) == (4, 3, 6)
    assert run.iterations[0].target_logits is not None
    assert [path.name for path in tmp_path.iterdir()] == ["run.dscope"]


def test_a_summary_from_a_file_with_another_engine(tmp_path: Path):
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("\ufeffOne day a dog\n", encoding="utf-8")
    place = ["--prompt-file", str(prompt), "--out", str(tmp_path / "run.dscope"), *FEW]
    assert main([*place, "--method", "linear@transformers", "--record", "summary"]) == 0
    run = load_run(tmp_path / "run.dscope")
    assert "".join(run.prompt_texts) == "One day a dog"
    assert run.pair.target.engine == "transformers"
    assert all(not iteration.nodes for iteration in run.iterations)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_asked_for(name: str):
    for sampling in (Sampling(), Sampling(0.8)):
        method, engine = chosen_method(name, sampling)
        assert method.name == name
        assert engine is None


def test_a_verifier_asked_for_by_name_is_not_exchanged(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert chosen_method("dynatree", Sampling(0.8))[0].verifier.name == "nss"
    arguments = recorded(tmp_path, "--method", "dynatree:verifier=greedy", "--temperature", "0.8")
    assert "Verifiers that fit" in refused(capsys, arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--method", "dynatre"], "did you mean 'dynatree'"),
        (["--method", "dynatree:depth=3"], "no setting 'depth'"),
        (["--method", "hf_generate"], "no trees"),
        (["--temperature", "-1"], "temperature"),
        (["--max-new-tokens", "0"], "max_new_tokens"),
        (["--max-new-tokens", "99999"], "context"),
        (["--warm-up", "-1"], "warm-up"),
        (["--record", "summary", "--rows", "full"], "leave one of the two away"),
        (["--target", "/no/such/folder"], "no folder"),
        (["--device", "cuda"], "no CUDA GPU"),
    ],
)
def test_wrong_wishes(tmp_path: Path, capsys: pytest.CaptureFixture, arguments: list[str], says: str):
    if arguments[-1] == "cuda" and __import__("torch").cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert says in refused(capsys, recorded(tmp_path, *arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "says"),
    [(None, "could not be read"), (b"", "is empty"), (b"\xff\xfe\xff", "UTF-8"), (b"a" * 2**21, "larger than")],
)
def test_wrong_prompt_files(tmp_path: Path, capsys: pytest.CaptureFixture, data: bytes | None, says: str):
    file = tmp_path / "prompt.txt"
    if data is not None:
        file.write_bytes(data)
    assert says in refused(capsys, ["--prompt-file", str(file), "--out", str(tmp_path / "run.dscope")])


def test_wrong_prompts(tmp_path: Path, capsys: pytest.CaptureFixture):
    out = ["--out", str(tmp_path / "run.dscope")]
    assert "no sample prompt" in refused(capsys, ["--prompt", "stories/nothing", *out])
    assert "empty" in refused(capsys, ["--prompt", "  ", *out])


@pytest.mark.slow
def test_nothing_is_overwritten_without_force(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch):
    place = tmp_path / "run.dscope"
    place.write_bytes(b"mine")
    assert "--force" in refused(capsys, recorded(tmp_path))
    assert place.read_bytes() == b"mine"
    # One that comes while the run is decoded stays as well.
    monkeypatch.setattr(command, "check_place", lambda path, force: None)
    assert "File exists" in refused(capsys, recorded(tmp_path))
    assert place.read_bytes() == b"mine"
    assert main(recorded(tmp_path, "--force")) == 0
    assert load_run(place).totals.new_tokens == 6
    assert list(tmp_path.iterdir()) == [place]


def test_wrong_places(tmp_path: Path, capsys: pytest.CaptureFixture):
    prompt = ["--prompt", "Once"]
    assert "no folder" in refused(capsys, [*prompt, "--out", str(tmp_path / "nowhere" / "run.dscope")])
    assert "is a folder" in refused(capsys, [*prompt, "--out", str(tmp_path)])


@pytest.mark.slow
def test_rows_that_outgrow_a_file(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch):
    monkeypatch.setattr(command, "MAX_ROW_BYTES", 1000)
    assert "--rows top" in refused(capsys, recorded(tmp_path, "--rows", "full"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (KeyboardInterrupt(), 1, "nothing was written"),
        (OutOfMemoryError("It is full: load less."), 1, "is full"),
    ],
)
def test_a_run_that_is_cut_short(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch, error, code, says):
    def stop(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(command, "record", stop)
    assert says in refused(capsys, recorded(tmp_path), code)
    assert list(tmp_path.iterdir()) == []


def test_a_defect_is_no_sentence(tmp_path: Path, monkeypatch):
    def broken(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'other'", name="other")

    monkeypatch.setattr(command, "_record", broken)
    with pytest.raises(ModuleNotFoundError):
        main(recorded(tmp_path))
