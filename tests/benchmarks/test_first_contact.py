"""The first contact with a GPU, without one: every part runs to its ten lines, whatever fails on the way."""

import argparse
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks import roofline
from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import ceilings, facts, ratios, report, run_part, shapes, stale
from benchmarks.gpu import measuring as gpu_measuring
from benchmarks.gpu.report import LINES, NO_CUDA, Report
from decoding.common.files import ROOT
from decoding.common.interruption import CancelledError
from decoding.compare.identity import OutputDifference
from decoding.models.pair import embedded_pair
from tests.helpers.tape import TapeGraphs


def asked(path=None, minutes=2.0):
    return argparse.Namespace(
        json=path, save=False, minutes=minutes, prompts=None, folder=None, like="tiny", dtype="float32",
        counted="loop_free",
    )  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path_factory):
    passes = tmp_path_factory.mktemp("tests") / "test_graphs.py"
    passes.write_text("def test_one():\n    pass\n")
    monkeypatch.setattr(roofline, "COPY_BYTES", {"cpu": 2**20})
    monkeypatch.setattr(roofline, "MATRIX_SIZE", {"cpu": 64})
    monkeypatch.setattr(roofline, "QUERIES", (1, 4))
    monkeypatch.setattr(roofline, "REPEATS", 1)
    monkeypatch.setattr(facts, "TESTS", (str(passes), "--rootdir", str(passes.parent)))
    monkeypatch.setattr(shapes, "CALLS_PER_ISSUE", 1)
    monkeypatch.setattr(ratios, "FEW_TOKENS", 4)
    monkeypatch.setattr(ratios, "TUNED", {"tree, tuned": "eagle2:node_budget=6,beam_width=2,max_depth=2"})
    monkeypatch.setattr(ratios, "LARGER", {})
    monkeypatch.setattr(gpu_measuring, "STEPS", {"DynaTree (+ history)": "dynatree"})
    monkeypatch.setattr(ceilings, "STEPS", {"DynaTree": "dynatree"})
    monkeypatch.setattr(ceilings, "BEAMS", {})
    monkeypatch.setattr(ceilings, "FEW_TOKENS", 4)
    monkeypatch.setattr(stale, "TOKENS", 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "measured", "says"),
    [
        ("facts", {"versions", "answers", "attention", "tests"}, "works: tests: "),
        ("shapes", {"passes of the target", "kernels", "graphs"}, "a token of the target: cuda_graph"),
        ("ratios", {"ratios"}, "contestants ran on 1 prompts"),
        ("ceilings", {"launches", "passes", "phases"}, "a copy moves"),
        ("stale", {"products", "pairs"}, "texts on living graphs are the same"),
    ],
)
def test_every_part_runs_to_its_lines(part, measured, says, tmp_path, capsys):
    path = tmp_path / "found.json"
    assert run_part(part, asked(path)) == 1, "a machine without CUDA is not what was asked about"
    printed = capsys.readouterr().out
    last = printed[printed.index(f"--- {part}") :].splitlines()[1:]
    assert 2 <= len(last) <= LINES and says in printed
    wrong = [line for line in last if line.startswith("wrong:")]
    assert wrong == [f"wrong: {NO_CUDA}"], "all else holds on a CPU"
    written = json.loads(path.read_text())
    assert written["benchmark"] == f"first-contact-{part}" and written["lines"] == last
    assert measured <= written.keys()


def test_a_step_that_fails_costs_the_others_nothing(tmp_path, capsys):
    def broken(_report):
        raise RuntimeError("CUDA error: no kernel image\nmore")

    def steps(_report):
        yield "first", broken
        yield "second", lambda report: report.works("it goes on")
        raise OSError("the pair is gone")

    path = tmp_path / "found.json"
    assert Report("facts", asked(path)).run(steps) == 1
    lines = json.loads(path.read_text())["lines"]
    assert lines[1:] == [
        "wrong: first: RuntimeError: CUDA error: no kernel image",
        "wrong: before a step: OSError: the pair is gone",
        "works: it goes on",
    ]
    assert "in broken" in capsys.readouterr().out, "where it failed is printed too"


@pytest.mark.parametrize("error", [ImportError("no xdist"), CancelledError(), subprocess.TimeoutExpired("pytest", 3)])
def test_whatever_a_step_fails_with_the_lines_are_printed(error, capsys):
    def fails(_report):
        raise error

    found = Report("facts", asked())
    assert found.run(lambda _report: iter([("first", fails), ("second", lambda report: report.works("goes on"))])) == 1
    assert any(type(error).__name__ in line for line in found.lines()) and "works: goes on" in found.lines()
    assert "--- facts" in capsys.readouterr().out


def test_figures_that_cannot_be_kept_cost_no_line(tmp_path, capsys):
    (tmp_path / "a file").touch()
    found = Report("facts", asked(tmp_path / "a file" / "found.json"))
    assert found.run(lambda _report: iter([("one", lambda report: report.works("it works"))])) == 1
    assert "works: it works" in capsys.readouterr().out.split("--- facts")[1]
    assert any("could not be kept: DiskError" in line for line in found.lines())


def test_steps_for_which_no_time_is_left_are_reported(capsys):
    late = Report("facts", asked(minutes=1e-9))
    late.run(lambda _report: iter([("versions", facts.versions)]))
    assert "slow:  versions: no time was left for it" in late.lines() and not late.figures


def test_a_step_that_hangs_is_broken_off_with_its_lines(tmp_path, capsys):
    hanging, codes = Report("stale", asked(tmp_path / "found.json")), []
    hanging.works("so far")
    hanging._break_off(codes.append)
    assert codes == [3] and "works: so far" in capsys.readouterr().out
    assert "had to be broken off" in json.loads((tmp_path / "found.json").read_text())["lines"][0]


def test_a_part_that_is_broken_off_ends_with_its_lines_whatever_keeping_does(monkeypatch, capsys):
    hanging, codes = Report("stale", asked()), []

    def fails():
        assert "--- stale" in capsys.readouterr().out, "the lines come first"
        raise KeyError("gpu")

    monkeypatch.setattr(hanging, "keep", fails)
    with pytest.raises(KeyError):
        hanging._break_off(codes.append)
    assert codes == [3]


def test_ten_lines_tell_of_every_kind():
    many = Report("facts", asked())
    for number in range(9):
        many.works(f"w{number}"), many.slow(f"s{number}"), many.wrong(f"x{number}")
    lines = many.lines()
    assert len(lines) == LINES and lines[-1] == "18 more findings stand above"
    assert [line[:5] for line in lines[:-1]] == ["wrong"] * 3 + ["slow:"] * 3 + ["works"] * 3
    few = Report("facts", asked())
    for number in range(12):
        few.wrong(f"x{number}")
    assert [line[:5] for line in few.lines()[:-1]] == ["wrong"] * 9


def test_all_is_well_only_without_a_wrong_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    good = Report("facts", asked())
    assert good.run(lambda _report: iter([("one", lambda report: report.slow("but it works"))])) == 0


def test_what_careless_graphs_answer():
    done = subprocess.CompletedProcess([], 0, 'noise\n{"error": 0.5, "touched": 2}\n', "")
    assert stale._answer(done) == {"error": 0.5, "touched": 2}
    for words, how in (("CUDA error: an illegal memory access", "ended"), ("requires CUDA support", "failed")):
        ran = subprocess.CompletedProcess([], 1, "", f"Traceback\nRuntimeError: {words}\n")
        assert stale._answer(ran) == {how: f"RuntimeError: {words}"}


class NotWritten(stale._Product):
    """A product that from its third call on is not written, as if its graph wrote elsewhere."""

    calls = 0

    def __call__(self):
        NotWritten.calls += 1
        if NotWritten.calls <= 2 * 3:
            super().__call__()


def test_a_product_that_was_not_written_is_wrong(monkeypatch, capsys):
    monkeypatch.setattr(stale, "_Product", NotWritten)
    found = Report("stale", asked())
    stale.products(found)
    (line,) = [line for line in found.lines() if "graph replayed" in line]
    assert line.startswith("wrong:") and "error nan" in line
    assert stale._worst([0.003, float("nan"), 0.001]) != stale._worst([0.003]) == 0.003


def test_careless_graphs_that_take_too_long_are_slow(monkeypatch, capsys):
    monkeypatch.setattr(stale, "CONTROL_S", 0.05)
    monkeypatch.setattr(stale, "CONTROL_LEAST_S", 0.0)
    found = Report("stale", asked())
    stale.control(found)
    assert "slow:  careless graphs were not tried (failed did not end in 0 s)" in found.lines()
    monkeypatch.setattr(stale, "CONTROL_LEAST_S", 20)
    late = Report("stale", asked(minutes=0.1))
    stale.control(late)
    assert late.lines() == ["slow:  careless graphs were not tried (failed no time was left)"]


TEST_FILES = {
    "fails": "def test_one():\n    assert False\n",
    "crashes": "import os, signal\ndef test_one():\n    os.kill(os.getpid(), signal.SIGSEGV)\n",
    "no import": "import no_such_module\n",
    "skips": "import pytest\n@pytest.mark.skip\ndef test_one():\n    pass\n",
    "hangs": "import time\ndef test_one():\n    assert False\ndef test_two():\n    time.sleep(60)\n",
}


WRONG = {
    "fails": ["test_cuda_graph_on_cuda.py::test_one", "no test passed"],
    "crashes": ["an error of their own (code -11", "no test passed"],
    "no import": ["test_cuda_graph_on_cuda.py", "no test passed"],
    "skips": ["no test passed", "1 tests that need CUDA were skipped though it is here"],
    "hangs": ["test_cuda_graph_on_cuda.py::test_one"],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TEST_FILES)
def test_tests_that_end_badly_are_wrong(kind, tmp_path, monkeypatch, capsys):
    wrong = WRONG[kind]
    path = tmp_path / "test_cuda_graph_on_cuda.py"
    path.write_text(TEST_FILES[kind])
    monkeypatch.setattr(facts, "TESTS", (str(path), "--rootdir", str(tmp_path)))
    monkeypatch.setattr(facts, "TESTS_S", 8 if kind == "hangs" else 60)
    monkeypatch.setattr(facts.importlib.util, "find_spec", lambda _name: None)
    found = Report("facts", asked())
    found.cuda = True
    facts.tests(found)
    reported = [line for line in found.lines() if line.startswith("wrong:")]
    assert len(reported) == len(wrong) and all(part in line for part, line in zip(wrong, reported, strict=True)), (
        reported
    )
    assert (kind == "hangs") == any("did not end in 8 s" in line for line in found.lines())


def test_tests_are_named_by_one_process_and_by_several():
    lines = "tests/a.py::test_x[1] FAILED [ 5%]\n[gw0] [ 6%] FAILED tests/b.py::test_y\nERROR tests/c.py - ImportError"
    assert facts._named("FAILED|ERROR", lines) == ["tests/a.py::test_x[1]", "tests/b.py::test_y", "tests/c.py"]


def test_cudnn_meets_every_shape_anew(monkeypatch, capsys):
    plain = torch.nn.functional.scaled_dot_product_attention

    def on_cpu(*tensors):
        with sdpa_kernel([SDPBackend.MATH]):
            return plain(*tensors)

    monkeypatch.setattr(facts, "scaled_dot_product_attention", on_cpu)
    monkeypatch.setattr(facts, "SHAPES", ((2, 1, 8, 1, 16), (2, 1, 8, 4, 16)))
    found = Report("facts", asked())
    found.cuda, found.device = True, torch.device("cpu")
    facts.attention(found)
    rows = found.figures["attention"]
    met = set()
    for row in rows:
        sizes = (row["queries"], row["rows"])
        if row["backend"] in ("default, cuDNN on", "cuDNN"):
            assert sizes not in met, "a plan for it is there already"
            met.add(sizes)
    assert len(met) == 4


@pytest.fixture
def static_pair():
    """The embedded pair in static shapes, with graphs that are tapes."""
    pair = embedded_pair("cpu").with_engine("cuda_graph")
    for model in (pair.target, pair.draft):
        model.engine.graphs = TapeGraphs(model.device)
    return pair


@pytest.mark.slow
def test_passes_of_many_tokens_are_captured(static_pair):
    graphs = static_pair.target.engine.graphs
    one_pass = shapes._pass(static_pair.target, 96, 16)
    for _ in range(2):
        one_pass()
    assert graphs.captured == 1


@pytest.mark.slow
def test_between_the_readings_of_memory_there_are_only_captures(static_pair, monkeypatch, capsys):
    graphs, readings = static_pair.target.engine.graphs, []

    def reading(_device):
        readings.append((graphs.cold, graphs.captured, len(graphs._graphs)))
        return 100 * len(readings)

    monkeypatch.setattr(shapes, "_used_bytes", reading)
    monkeypatch.setattr(shapes, "GRAPHS", (2, 4))
    found = Report("shapes", asked())
    found.cuda = True
    shapes.graphs(found, static_pair)
    (cold, captured, owners), (cold_after, captured_after, owners_after) = readings
    assert cold_after - cold == captured_after - captured == 2 and owners == owners_after
    assert found.figures["graphs"]["bytes_each"] == 50


def figures_of(*labels, prompts=1, goals=(), **cold):
    figures = [{"label": label, "throughput": 1, "cold_passes": cold.get(label, 0), "failures": []} for label in labels]
    return {"figures": figures, "goals": list(goals), "prompts": ["p"] * prompts}


def test_more_prompts_replace_one_unless_fewer_contestants_ran():
    found, known = Report("ratios", asked()), ratios.KnownRatio(("a", "b", "c"))
    ratios.tell(found, known, figures_of("a"), [("slow", "a is slow"), ("wrong", "a differs")])
    ratios.tell(found, known, figures_of("a", "b"), [("works", "b is fast")])
    reported = ["wrong: a differs", "works: 2 of 3 contestants ran on 1 prompts", "works: b is fast"]
    assert found.lines() == reported, "what is wrong stays"
    late = figures_of("a", prompts=3)
    ratios.tell(found, known, late, [("works", "a on three prompts"), ("wrong", "c differs")])
    assert found.lines() == [
        "wrong: a differs", "wrong: c differs",
        "slow:  only 1 of 3 contestants ran on 3 prompts: the ratios are those of fewer prompts", *reported[1:],
    ]  # fmt: skip


def test_what_no_step_measured_is_reported_once_and_with_its_reason():
    found, known = Report("ratios", asked()), ratios.KnownRatio(("a", "b", "c", "d"))
    ratios.tell(found, known, figures_of("a"), [])
    known.failures |= {"a": "failed at first", "b": "no kernel image"}
    failed = {"figures": [{"label": "c", "failures": ["c ran out of memory."], "cold_passes": 0}], "prompts": ["p"]}
    ratios.tell(found, known, failed, [])
    ratios.not_measured(found, known)
    reported = [line for line in found.lines() if "could not run" in line or "not measured" in line]
    assert reported == [
        "wrong: b could not run: no kernel image", "wrong: c could not run: c ran out of memory.",
        "slow:  d was not measured: no time was left",
    ]  # fmt: skip


def test_in_16_bits_only_what_rounding_does_not_explain_is_wrong():
    margins = (5e-5, 0.1, 0.24, 0.3)
    differences = [(0, 0, OutputDifference(3, 1, 2, margin, False, f"{margin} apart.")) for margin in margins]
    comparison = SimpleNamespace(
        differences=differences, contestants=[SimpleNamespace(label="a tree")], prompts=["a story"]
    )
    rounded = "outputs part from the reference where the target's two best logits lie at most"
    assert list(ratios.differing(comparison, "bfloat16")) == [
        ("wrong", "a tree on a story: 0.3 apart."), ("works", f"3 {rounded} 0.24 apart, which is rounding in bfloat16"),
    ]  # fmt: skip
    assert [kind for kind, _ in ratios.differing(comparison, "float32")] == ["wrong"] * 3 + ["works"]


def test_what_cannot_be_judged_is_no_goal_that_is_reached():
    host = "iterations of g on the device 1.40x those on the host, as graphs were made meanwhile"
    lines = ["goal reached: a 3.10x b, goal 3x", "goal MISSED: c 1.00x d, goal 2x (2 tokens in 3 ms)",
             "goal not measured: e over f", f"goal not judged: {host}"]  # fmt: skip
    assert list(ratios.goals(figures_of("a", "c", goals=lines, c=2))) == [
        ("slow", "c was measured while graphs were made (2 passes)"),
        ("slow", f"not judged: {host}"),
        ("works", "a 3.10x b, goal 3x"), ("slow", "c 1.00x d, goal 2x"), ("slow", "not measured: e over f"),
    ]  # fmt: skip


def test_graphs_of_both_engines_are_reported():
    graphs = {name: SimpleNamespace(captured=9, evicted=0, failure="") for name in ("target (static)", "draft (host)")}
    graphs["draft (host)"].failure, graphs["draft (host)"].evicted = "no memory", 4
    assert [kind for kind, _ in ratios.of_graphs(graphs)] == ["works", "wrong", "slow"]


@pytest.mark.slow
def test_without_ceilings_there_are_milliseconds(monkeypatch, capsys):
    def fails(*_others):
        raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")

    monkeypatch.setattr(ceilings, "measure_ceilings", fails)
    found = Report("ceilings", asked())
    found.run(ceilings.steps)
    lines = found.lines()
    assert any(line.startswith("wrong: ceilings: RuntimeError: Offset increment") for line in lines)
    assert any("captured target: a token in" in line and "limits that are not known" in line for line in lines)
    assert {row["share_of_limit"] for row in found.figures["passes"]} == {None} and found.figures["phases"]


@pytest.mark.slow
def test_phases_that_were_measured_while_graphs_were_made_are_slow(static_pair, monkeypatch, capsys):
    monkeypatch.setattr(roofline, "MOST_TRIES", 1)
    found = Report("ceilings", asked())
    ceilings.phases(found, static_pair, None)
    assert any("DynaTree was measured while graphs were made" in line for line in found.lines())
    assert "so slower than they are: {" in capsys.readouterr().out
    monkeypatch.setattr(roofline, "MOST_TRIES", 5)
    warm = Report("ceilings", asked())
    ceilings.phases(warm, static_pair, None)
    assert not any("graphs were made" in line for line in warm.lines())


def test_the_command_takes_a_part(monkeypatch):
    taken = []
    monkeypatch.setattr(gpu, "run_part", lambda part, args: taken.append(part) or 0)
    monkeypatch.setattr("sys.argv", ["gpu", "--first-contact", "stale"])
    assert gpu.main() == 0 and taken == ["stale"]
    assert set(gpu.PARTS) == {"facts", "shapes", "ratios", "ceilings", "stale"} and report.MINUTES <= 8


@pytest.mark.slow
def test_every_package_that_a_part_imports_is_asked_for():
    """A bare machine says what is missing before a part breaks off."""
    asking = """
import ast, sys
from benchmarks.gpu import ceilings, facts, ratios, shapes, stale
own = {"benchmarks", "decoding"}
files = [module.__file__ for name, module in list(sys.modules.items()) if name.partition(".")[0] in own]
trees = [node for file in files if file for node in ast.parse(open(file, encoding="utf-8").read()).body]
names = {alias.name for node in trees if isinstance(node, ast.Import) for alias in node.names}
names |= {node.module for node in trees if isinstance(node, ast.ImportFrom)}
print(*{name.partition(".")[0] for name in names} - own - sys.stdlib_module_names)
"""
    found = subprocess.run([sys.executable, "-c", asking], cwd=ROOT, capture_output=True, text=True, check=True)
    brought = {"torch", "huggingface_hub", "tokenizers"}  # the machine's own, and what comes with transformers
    imported = set(found.stdout.split())
    assert {"torch", "numpy", "msgspec"} <= imported <= {*facts.NEEDED, *brought}
