"""Stored results say where they come from, and the figures of the docs are written from them alone."""

import argparse
import json
import re
import shutil
import subprocess
import sys

import pytest
import torch

from benchmarks import readme_table
from benchmarks.markdown import between
from benchmarks.readme_table import BEGIN, END, LONG, README, load_results, section, summary
from decoding.engines.clock import processor_name
from decoding.experiments import command, executors
from decoding.experiments.command import arguments, code_version, save_figures, typed_command
from decoding.experiments.experiment import RESULTS

ABSOLUTE = re.compile(r"(^|[\s\"'=])/\w+/\w+")
SPREAD = {"median": 61.25, "low": 50.4, "high": 71.0, "count": 6}
RECORD = {
    "benchmark": "methods",
    "created": "2030-01-02T03:04:05Z",
    "command": "python -m benchmarks.methods --save",
    "commit": "0123456789abcdef-dirty",
    "hardware": {
        "processor": "Some CPU", "cores": "4", "threads": "2", "device": "cpu", "python": "3.11.1", "torch": "2.13.0",
        "transformers": "5.23.0",
    },
    "setup": "Embedded pair, cpu, float32",
    "goals": ["goal reached: 1.50x"],
    "figures": [
        {
            "label": "DynaTree, tuned", "looping_tokens": 3, "tokens": 1200, "throughput": SPREAD,
            "ratio_to_hf_generate": {**SPREAD, "median": 1.5}, "ratio_to_hf_assisted": None,
            "ratio_to_autoregressive": {**SPREAD, "median": 1.25}, "tokens_per_iteration": 2.345,
        },
        {"label": "HF assisted", "looping_tokens": 0, "tokens": 0, "failures": ["no"]},
    ],
}  # fmt: skip


def test_a_result_says_where_it_comes_from(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(sys, "argv", ["benchmarks/methods.py", "--target", "/home/me/models/wide", "--json", "/tmp/x"])
    args = argparse.Namespace(json=tmp_path / "own.json", save=True)
    save_figures(args, "methods", {"figures": [1]}, torch.device("cpu"))
    kept = tmp_path / "results" / "methods-cpu.json"
    record = json.loads(kept.read_text())
    assert {**record, "created": 0} == {**json.loads(args.json.read_text()), "created": 0}
    assert record["figures"] == [1] and record["benchmark"] == "methods"
    assert {"processor", "python", "torch", "transformers", "threads"} <= record["hardware"].keys()
    assert record["command"] == "python -m benchmarks.methods --target wide"
    assert not ABSOLUTE.search(kept.read_text())


def test_results_of_another_processor_stand_beside_those_that_are_there(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["benchmarks/batch.py", "--save"])
    args, own = argparse.Namespace(json=None, save=True), command.describe_hardware(torch.device("cpu"))
    for processor in ("AMD EPYC family 26 model 2", "AMD EPYC family 25 model 1", "AMD EPYC family 26 model 2"):
        monkeypatch.setattr(command, "describe_hardware", lambda device, is_of=processor: {**own, "processor": is_of})
        save_figures(args, "batch", {"figures": [processor]}, torch.device("cpu"), "widened-4x", by_processor=True)
    kept = {file.name: json.loads(file.read_text())["figures"] for file in tmp_path.iterdir()}
    assert kept == {
        "batch-cpu-widened-4x.json": ["AMD EPYC family 26 model 2"],
        "batch-cpu-AMD-EPYC-family-25-model-1-widened-4x.json": ["AMD EPYC family 25 model 1"],
    }


@pytest.mark.parametrize("there", [b"{", b"[]", b'{"hardware": {"processor": "another one"}}'])
def test_other_results_and_damaged_ones_are_overwritten(monkeypatch, tmp_path, there):
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["benchmarks/reasons.py", "--save"])
    (tmp_path / "reasons-cpu.json").write_bytes(there)
    save_figures(argparse.Namespace(json=None, save=True), "reasons", {"figures": [1]}, torch.device("cpu"))
    assert [json.loads(file.read_text())["figures"] for file in tmp_path.iterdir()] == [[1]]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("AMD EPYC", "AMD EPYC family 25 model 1"),
        ("Some Xeon CPU @ 2.20GHz", "Some Xeon CPU @ 2.20GHz family 25 model 1"),  # a clock rate names no generation
        ("AMD EPYC 7763 64-Core Processor", "AMD EPYC 7763 64-Core Processor"),
    ],
)
def test_a_processor_whose_name_has_no_number_is_named_by_family_and_model(name, said):
    one = f"processor\t: 0\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: {name}\n"
    assert processor_name(f"{one}\n{one.replace('25', '26')}") == said
    assert processor_name(f"model name : {name}") == name and processor_name("")


def test_nothing_is_kept_unasked(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    save_figures(argparse.Namespace(json=None, save=False), "methods", {}, torch.device("cpu"))
    assert not list(tmp_path.iterdir())


def test_a_quick_run_cannot_be_kept(capsys):
    with pytest.raises(SystemExit) as ended:
        arguments("x").parse_args(["--quick", "--save"])
    assert ended.value.code == 2 and "not allowed with" in capsys.readouterr().err


def test_the_command_can_be_typed_elsewhere(monkeypatch):
    typed = ["/x/benchmarks/gpu.py", "--json=/a/b.json", "--folder=/a/b/pair", "--methods", "linear:length=4", "a b"]
    monkeypatch.setattr(sys, "argv", typed)
    assert typed_command() == "python -m benchmarks.gpu --folder=pair --methods linear:length=4 'a b'"


def test_the_commit_tells_whether_code_was_changed(monkeypatch, tmp_path):
    def git(*words):
        who = ("-c", "user.name=n", "-c", "user.email=n@example.org")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(executors, "ROOT", tmp_path)
    monkeypatch.setenv("DRAFTSCOPE_COMMIT", "reported")
    assert code_version() == "reported", "no checkout"
    git("init")
    (tmp_path / "code.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "x")
    clean = code_version()
    assert re.fullmatch(r"[0-9a-f]{40}", clean)
    results = tmp_path / "decoding" / "experiments" / "results"
    results.mkdir(parents=True)
    (results / "methods-cpu.json").write_text("{}")
    assert code_version() == clean, "results are no code"
    (tmp_path / "code.py").write_text("2")
    assert code_version() == f"{clean}-dirty"
    installed = tmp_path / ".venv" / "site-packages"
    installed.mkdir(parents=True)
    monkeypatch.setattr(executors, "ROOT", installed)
    assert code_version() == "reported", "the checkout of something else"


@pytest.mark.parametrize(("page", "make"), [(README, summary), (LONG, section)])
def test_the_docs_are_what_the_results_say(page, make):
    present = page.read_text(encoding="utf-8")
    assert present == between(present, BEGIN, END, make(load_results(RESULTS))), "run python -m benchmarks.readme_table"


def test_no_speed_stands_outside_the_written_section():
    present = README.read_text(encoding="utf-8")
    before, after = present.split(BEGIN)[0], present.split(END)[1]
    assert not re.search(r"\d\s*(tok/s|tokens per second)|\d\.\d+\s?[x×]", before + after)


def test_every_stored_result_is_a_whole_run_of_known_code():
    for path in RESULTS.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        record = json.loads(text)
        assert path.name.startswith(f"{record['benchmark']}-"), path.name
        assert record["commit"] and "--quick" not in record["command"], path.name
        assert ("gpu" in record["hardware"]) == ("-cuda-" in path.name), path.name
        assert not ABSOLUTE.search(text), path.name


@pytest.mark.slow
def test_check_notices_a_figure_typed_by_hand(monkeypatch, tmp_path, capsys):
    results, readme, long = tmp_path / "results", tmp_path / "README.md", tmp_path / "results.md"
    results.mkdir()
    (results / "methods-cpu.json").write_text(json.dumps(RECORD))
    for page in (readme, long):
        page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    monkeypatch.setattr(readme_table, "RESULTS", results)
    monkeypatch.setattr(readme_table, "README", readme)
    monkeypatch.setattr(readme_table, "LONG", long)

    def run(*words) -> int:
        monkeypatch.setattr(sys, "argv", ["readme_table", *words])
        return readme_table.main()

    assert run("--check") == 1 and "old" in readme.read_text(), "checking writes nothing"
    assert run() == 0 and run("--check") == 0
    written = readme.read_text()
    assert written.startswith("before\n") and written.endswith("\nafter\n") and "old" not in written
    for page, figure in ((readme, "2.35"), (long, "61.2")):
        right = page.read_text()
        page.write_text(right.replace(figure, "91.2"))
        assert run("--check") == 1
        assert run() == 0 and page.read_text() == right


def test_the_short_table_has_the_columns_of_every_pair(tmp_path):
    wide = RECORD | {"setup": "Embedded pair, target 4× as wide, cpu, float32", "figures": [
        RECORD["figures"][0] | {"throughput": SPREAD | {"median": 12.0}}
    ]}  # fmt: skip
    for name, record in (("methods-cpu-widened-4x", wide), ("methods-cpu", RECORD)):
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    head, _, row = readme_table.summary(readme_table.load_results(tmp_path)).split("\n\n")[1].splitlines()
    columns = [cell.strip() for cell in head.split("|")[1:-1]]
    own = list(readme_table.SHORT_COLUMNS)
    assert columns == ["method", *own, *(f"target 4× as wide: {what}" for what in own)]
    assert [cell.strip() for cell in row.split("|")[1:-1]][1:] == ["2.35", "61", "1.25", "2.35", "12", "1.25"]


@pytest.mark.slow
def test_a_table_holds_the_figures_and_their_source():
    text = section({"methods": [RECORD]})
    assert "| DynaTree, tuned | 61.2 | 50.4 to 71.0 | 1.50 |  | 1.25 | 2.35 |" in text
    assert "| HF assisted | not measured |" in text
    assert "3 of 1,200 tokens were in loops" in text and "* goal reached: 1.50x" in text
    assert "Some CPU, 4 cores, torch threads 2; Python 3.11.1, torch 2.13.0, transformers 5.23.0; " in text
    assert "commit 0123456789 with changes, 2030-01-02: `python -m benchmarks.methods --save`" in text
    assert "widened" not in text


@pytest.mark.slow
def test_parts_widened_weights_and_the_gpu_are_reported():
    part = {key: RECORD[key] for key in ("figures", "goals")}
    gpu = {key: RECORD[key] for key in ("created", "command", "commit")}
    gpu |= {
        "benchmark": "gpu",
        "hardware": {**RECORD["hardware"], "gpu": "Some GPU"},
        "pair": "widened-pythia-2.8b + widened-pythia-70m",
    }
    text = section({"gpu": [{**gpu, "greedy": part, "T=1": part, "passes": [], "ceilings": {}}]})
    assert text.count("| DynaTree, tuned |") == 2 and "**greedy**" in text and "**T=1**" in text
    assert (
        "It writes what the embedded pair writes, at the cost of a target of 2.78 B parameters." in text
        and "Some GPU, Some CPU" in text
    )


@pytest.mark.slow
def test_what_is_missing_says_what_to_run():
    unjudged = {name: value for name, value in RECORD.items() if name not in ("goals", "summary")}
    text = section({"roofline": [unjudged]})  # of a GPU, which has no goals
    assert "* Passes beside their limits: not measured yet: run `python -m benchmarks.roofline --save`" in text
    text = section({"scaling": [{**RECORD, "goals": ["goal MISSED: a", "goal reached: b"]}]})
    assert "run `python -m benchmarks.methods --save`." in text
    assert "run `python -m benchmarks.gpu --save` on a CUDA machine." in text
    assert "run `python -m benchmarks.offload --save`" in text and "benchmarks.scaling --save" not in text
    assert "* Cost against size: goal MISSED: a; goal reached: b (Some CPU" in text


def test_a_readme_without_markers_is_refused():
    for text in ("", f"{END}\n{BEGIN}", f"{BEGIN}\n{BEGIN}\n{END}"):
        with pytest.raises(ValueError, match="once each and in this order"):
            between(text, BEGIN, END, "new")


def test_heads_that_were_not_kept_are_in_no_table_of_differences(tmp_path):
    """Those of equal steps come with the program; those of equal times have the errors that their trainings gave."""
    said = readme_table._heads(readme_table.HEADS_HOME)
    tables = [[line for line in part.splitlines() if line.startswith("|")] for part in said.split("\n\n")]
    paired, unpaired = (lines for lines in tables if lines)
    assert "minus the EAGLE head" in paired[0] and "minus" not in unpaired[0]
    assert (len(paired), len(unpaired)) == (2 + 5, 2 + 6) and "go on from it" in unpaired[2]
    assert sum(line.count("±") == 2 for line in paired) == 4 and all(line.count("±") == 1 for line in unpaired[2:])
    shutil.copytree(readme_table.HEADS_HOME, tmp_path / "heads")
    (tmp_path / "heads" / "same_windows.json").unlink()
    assert "--evaluate --corpus TEXTS --ship" in readme_table._heads(tmp_path / "heads")
