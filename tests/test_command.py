"""The command `draftscope`: its help without torch, its refusals, and arguments that arrive as they were typed."""

import importlib.util
import re
import runpy
import subprocess
import sys
from typing import get_args

import pytest

import draftscope
from decoding.common.errors import command
from decoding.training.folder import Kind
from tests.helpers.process import ROOT, printed

NAMES = "run, record, diff, export, import-metrics, roofline, doctor, recycle, widen, sweep, gallery, bench, train"


def typed(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, list[tuple[str, list[str]]]]:
    """The exit code of a command line, and the modules that it ran, each with its arguments."""
    ran: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(runpy, "run_module", lambda module, **_: ran.append((module, sys.argv[1:])))
    monkeypatch.setattr(sys, "argv", ["draftscope", *words])
    return draftscope.main(), ran


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_help_lists_every_command(words, monkeypatch, capsys):
    assert typed(monkeypatch, *words) == (0, [])
    listed = re.findall(r"^  ([\w-]+) (?:NAME |KIND )?\.\.\.  +\w+", capsys.readouterr().out, re.MULTILINE)
    assert sorted(listed) == [
        "bench",
        "diff",
        "doctor",
        "export",
        "gallery",
        "import-metrics",
        "record",
        "recycle",
        "roofline",
        "run",
        "sweep",
        "train",
        "widen",
    ]


def test_help_and_lists_load_nothing_heavy():
    code = """
import contextlib, io, sys
import draftscope
for words in (["--help"], ["bench"], ["train"], ["wrong"]):
    sys.argv[1:] = words
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        draftscope.main()
print(sorted({"torch", "transformers", "streamlit", "plotly", "pandas"} & set(sys.modules)))
"""
    assert printed(code).strip() == "[]"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("bnech",), f"There is no `draftscope bnech`: choose one of {NAMES}."),
        (("--wrong",), f"There is no `draftscope --wrong`: choose one of {NAMES}."),
        (
            ("train", "all"),
            "There is no `draftscope train all`: choose one of embedded, example, head, head_suite, selector.",
        ),
    ],
)
def test_what_there_is_not_is_refused_in_a_sentence(words, sentence, monkeypatch, capsys):
    assert typed(monkeypatch, *words) == (2, [])
    assert capsys.readouterr().err == f"error: {sentence}\n"


def test_a_module_that_is_no_command_is_no_benchmark(monkeypatch, capsys):
    assert importlib.util.find_spec("benchmarks.fakes")
    assert typed(monkeypatch, "bench", "fakes") == (2, [])
    assert "There is no `draftscope bench fakes`: choose one of action_times, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "module", "rest"),
    [
        (("run", "--server.port=8502"), "streamlit", ["run", str(draftscope.ROOT / "app.py"), "--server.port=8502"]),
        (("record", "--help"), "decoding.record", ["--help"]),
        (("diff", "a b.dscope", "c.dscope"), "decoding.diff", ["a b.dscope", "c.dscope"]),
        (("export", "a.dscope", "--engine", "vllm"), "decoding.export_config", ["a.dscope", "--engine", "vllm"]),
        (("import-metrics", "metrics.txt", "--json"), "decoding.import_metrics", ["metrics.txt", "--json"]),
        (("doctor", "--target", "a b", "--json"), "decoding.doctor", ["--target", "a b", "--json"]),
        (("recycle", "--name", "a b"), "decoding.recycle", ["--name", "a b"]),
        (("widen", "--like", "tiny"), "decoding.widen", ["--like", "tiny"]),
        (("sweep", "grid.toml", "--dry-run"), "decoding.experiments.sweep", ["grid.toml", "--dry-run"]),
        (("bench", "methods", "--quick"), "benchmarks.methods", ["--quick"]),
        (("bench", "gpu", "--help"), "benchmarks.gpu", ["--help"]),
        (("train", "head", "--loss", "talf"), "decoding.training.head", ["--loss", "talf"]),
    ],
)
def test_arguments_are_handed_on(words, module, rest, monkeypatch):
    assert typed(monkeypatch, *words) == (0, [(module, rest)])
    assert importlib.util.find_spec(module)


def test_the_exit_code_is_that_of_what_ran(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["draftscope", "diff", str(tmp_path / "a.dscope"), str(tmp_path / "b.dscope")])
    with pytest.raises(SystemExit) as ended:
        draftscope.main()
    assert ended.value.code == 2


@pytest.mark.parametrize(("family", "some"), [("bench", ("methods", "gpu", "sweep")), ("train", get_args(Kind))])
def test_lists_say_what_each_does(family, some, monkeypatch, capsys):
    assert typed(monkeypatch, family) == (0, [])
    said = capsys.readouterr().out
    purposes = dict(re.findall(r"^  (\w+)  +(.*)$", said, re.MULTILINE))
    assert set(some) <= set(purposes)
    assert all(len(purpose) > 20 and "python -m" not in purpose for purpose in purposes.values())


ENDLESS = """
import sys
from decoding.common.errors import command

@command
def main():
    while True:
        print("a line of a table", flush=True)

sys.exit(main())
"""


def test_a_pipe_that_is_not_its_output_ends_a_command_with_its_error():
    @command
    def main() -> int:
        raise BrokenPipeError("a process of its own is gone")

    with pytest.raises(BrokenPipeError):
        main()


def test_a_command_whose_reader_has_read_enough_ends_without_a_word():
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait(timeout=60) == 0
