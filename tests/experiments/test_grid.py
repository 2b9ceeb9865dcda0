"""Grids of experiments: what a TOML file comes to, and what is refused in one sentence."""

import json
import tomllib
from collections import Counter
from dataclasses import asdict, replace

import pytest
from huggingface_hub.errors import EntryNotFoundError

from decoding.common.errors import DiskError, ExperimentError, PromptError
from decoding.common.prompts import load_prompts
from decoding.compare.contestants import format_contestant
from decoding.experiments import plan as prompt_sets
from decoding.experiments.executors import LocalExecutor
from decoding.experiments.experiment import GRID, GRIDS
from decoding.experiments.grid import (
    Grid,
    MethodAxis,
    PromptSet,
    contestants,
    grid_from,
    kept_grid,
    read_grid,
    write_grid,
)
from decoding.experiments.plan import DATA_SETS, grid_size, prompts_of, read_texts
from decoding.models.pair import embedded_pair
from decoding.sampling.sampling import Sampling

SWEEP = """
name = "fixed trees"
new_tokens = [16, 32]
repeats = 2
[prompts]
count = 3
kinds = ["stories", "fiction"]
max_tokens = [0, 24]
[[sampling]]
temperature = 0
seeds = [1, 2]
[[sampling]]
temperature = 0.8
top_p = 0.9
[[methods]]
method = "fixed_tree@packed:branching=2"
vary = { max_depth = [3, 4], prune_probability = [0.1, 0] }
[[methods]]
method = "hf_generate"
"""
ONE = '[[methods]]\nmethod = "dynatree"\n'


def grid_of(text: str):
    return grid_from(tomllib.loads(text), "try")


def lines(grid, sampling=Sampling()):  # noqa: B008 - frozen
    return [format_contestant(each) for each in contestants(grid, sampling)[0]]


def test_every_combination_is_there_behind_the_reference():
    grid = grid_of(SWEEP)
    assert (grid.name, grid.new_tokens, grid.repeats) == ("fixed trees", (16, 32), 2)
    assert grid.prompts == PromptSet("samples", 3, ("stories", "fiction"), (0, 24))
    assert grid.samplings == (Sampling(seed=1), Sampling(seed=2), Sampling(0.8, 0.9))
    found = lines(grid)
    assert found[0] == "autoregressive" and found[-1] == "hf_generate" and len(found) == 6
    assert found[1] == "fixed_tree@packed:max_depth=3,branching=2"
    assert "fixed_tree@packed:max_depth=4,branching=2,prune_probability=0.0" in found
    assert all("verifier=nss" in line for line in lines(grid, Sampling(0.8))[1:-1]), "greedy would bias the output"


def test_what_is_there_twice_is_run_once():
    text = (
        ONE
        + '[[methods]]\nmethod = "dynatree"\nvary = { base_depth = [5, 4] }\n[[methods]]\nmethod = "autoregressive"\n'
    )
    assert lines(grid_of(text)) == ["autoregressive", "dynatree", "dynatree:base_depth=4"]
    assert lines(grid_of('reference = ""\n' + ONE)) == ["dynatree"]


def test_a_verifier_may_vary_with_its_own_settings():
    text = '[[methods]]\nmethod = "delayed"\nvary = { verifier = ["khisti", "traversal"], paths = [2] }\n'
    assert [line.partition(":")[2] for line in lines(grid_of(text), Sampling(1.0))[1:]] == [
        "paths=2,verifier=khisti", "paths=2,verifier=traversal"]  # fmt: skip


def test_contradictions_are_refused_or_left_out():
    text = '[[methods]]\nmethod = "dynatree"\nvary = { branch_min = [1, 3], branch_mid = [2], branch_max = [2] }\n'
    with pytest.raises(ExperimentError, match="dynatree with branch_min=3, branch_mid=2, branch_max=2: "):
        grid_of(text)
    grid = grid_of("skip_contradictions = true\n" + text)
    ways, left_out = contestants(grid, Sampling())
    assert len(ways) == 2 and len(left_out) == 1 and left_out[0].startswith("dynatree with branch_min=3")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no methods"),
        ('[[methods]]\nmethod = "dinatree"', "There is no method 'dinatree': did you mean 'dynatree'"),
        ('[[methods]]\nmethod = "dynatree"\nvary = { depth = [1] }', "DynaTree has no setting 'depth'"),
        (
            '[[methods]]\nmethod = "fixed_tree"\nvary = { max_depth = ["x"] }',
            "max_depth must be a whole number, not 'x'",
        ),
        (
            '[[methods]]\nmethod = "fixed_tree"\nvary = { max_depth = [] }',
            "max_depth of fixed_tree has no values",
        ),
        ('[[methods]]\nmethod = "hf_generate"\nvary = { max_depth = [1] }', "hf_generate has no settings"),
        ('[[methods]]\nname = "dynatree"', "has no 'name': choose method, vary"),
        ("[[methods]]\nmethod = 3", "needs a method"),
        ('methods = "dynatree"', "methods must be a list of tables"),
        ("colour = 1\n" + ONE, "the grid has no 'colour'"),
        ('new_tokens = ["many"]\n' + ONE, "new_tokens must be a list of whole numbers, 1 or more"),
        ("new_tokens = [0]\n" + ONE, "new_tokens must be a list of whole numbers, 1 or more"),
        ("repeats = 0\n" + ONE, "repeats must be at least 1"),
        ("repeats = 2000000\n" + ONE, "at most 1,000,000"),
        ("reference = 5\n" + ONE, "reference must be the name of a method"),
        ("ignore_end_of_text = 1\n" + ONE, "ignore_end_of_text must be true or false"),
        ("prompts = 4\n" + ONE, "prompts must be a table"),
        ("prompts.count = 0\n" + ONE, "count of prompts must be at least 1"),
        ('prompts.kinds = "stories"\n' + ONE, "kinds must be a list of strings"),
        ("sampling = [{ temperature = -1 }]\n" + ONE, "temperature must be 0, which decodes greedily"),
        ('sampling = [{ temperature = "hot" }]\n' + ONE, "temperature of .* must be a number, not 'hot'"),
        ("sampling = [{ seed = 1 }]\n" + ONE, "has no 'seed'"),
        ('[pair]\nteacher = "x"\n' + ONE, "has no 'teacher'"),
        ('[pair]\nmax_memory_gib = "a"\n' + ONE, "value of the wrong type: max_memory_gib = 'a'"),
        ("sampling = [{ seeds = [99999999999999999999] }]\n" + ONE, "seeds has a number above 9,223,372"),
    ],
)
def test_what_is_wrong_is_named(text, said):
    with pytest.raises(ExperimentError, match=said):
        grid_of(text)


def test_a_file_that_is_no_grid(tmp_path):
    with pytest.raises(ExperimentError, match="cannot be read"):
        read_grid(tmp_path / "none.toml")
    file = tmp_path / "sweep.toml"
    for content in (b"methods = [", b"\xff\xfe"):
        file.write_bytes(content)
        with pytest.raises(ExperimentError, match="is not a TOML file"):
            read_grid(file)
    file.write_text(ONE)
    assert read_grid(file).name == "sweep"


def test_prompts_come_kind_by_kind(tmp_path):
    found = prompts_of(PromptSet(count=3, kinds=("fiction", "stories")))
    assert [prompt.kind for prompt in found] == ["stories", "fiction", "stories"]
    (tmp_path / "own.txt").write_text("Some words.")
    assert [prompt.text for prompt in prompts_of(PromptSet(set=str(tmp_path)))] == ["Some words."]
    with pytest.raises(ExperimentError, match="There is no set of prompts 'mine': choose samples, long, a folder"):
        prompts_of(PromptSet(set="mine"))
    with pytest.raises(ExperimentError, match="No prompt of samples is of kind law: choose stories"):
        prompts_of(PromptSet(kinds=("law",)))


def test_a_data_set_that_is_not_here_says_that_it_needs_a_network():
    with pytest.raises(ExperimentError, match=r"gsm8k \(openai/gsm8k\) is not on this machine .* connect"):
        prompts_of(PromptSet(set="gsm8k", count=2))


def test_texts_of_a_data_set_are_read_from_parquet(tmp_path, monkeypatch):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "0000.parquet"
    pq.write_table(pa.table({"text": ["= Heading =", "", "word " * 60, "other " * 60, None]}), file)
    assert [prompt.text[:5] for prompt in read_texts(file, "wikitext-2", None)] == ["word ", "other"]
    assert len(read_texts(file, "wikitext-2", 1)) == 1
    pq.write_table(pa.table({"prompt": [["First turn?", "Second?"], ["Another."]]}), file)
    assert [prompt.text for prompt in read_texts(file, "mt-bench", None)] == ["First turn?", "Another."]
    for content, said in ((None, "cannot be read"), (b"no parquet", "cannot be read")):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(PromptError, match=said):
            read_texts(file, "gsm8k", None)
    pq.write_table(pa.table({"text": ["", "short"]}), file)
    with pytest.raises(PromptError, match="has no text"):
        read_texts(file, "wikitext-2", None)
    monkeypatch.setattr("decoding.experiments.plan.hf_hub_download", lambda *names, **more: str(file))
    pq.write_table(pa.table({"question": ["How many?"] * 3}), file)
    assert [p.name for p in prompts_of(PromptSet(set="gsm8k", count=2))] == ["00000", "00001"]
    assert set(DATA_SETS) == {
        "wikitext-2", "pg-19", "gsm8k", "humaneval", "mt-bench", "cnn-dailymail", "c4", "openwebtext"}  # fmt: skip
    assert DATA_SETS.keys().isdisjoint({prompt_sets.SAMPLES, prompt_sets.LONG})


def test_of_a_large_data_set_the_part_that_the_hub_has_converted_is_taken(tmp_path, monkeypatch):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file, asked = tmp_path / "0000.parquet", []
    pq.write_table(pa.table({"text": ["Some text."]}), file)

    def fetch(repository, place, **more):
        asked.append(place)
        if "partial-" not in place:
            raise EntryNotFoundError("404")
        return str(file)

    monkeypatch.setattr("decoding.experiments.plan.hf_hub_download", fetch)
    assert prompts_of(PromptSet(set="c4"))[0].text == "Some text."
    assert asked == ["en/train/0000.parquet", "en/partial-train/0000.parquet"]
    monkeypatch.setattr("decoding.experiments.plan.try_to_load_from_cache", lambda *names, **more: str(file))
    assert len(prompts_of(PromptSet(set="openwebtext"))) == 1 and len(asked) == 2, "what is there is not fetched"


@pytest.mark.slow
def test_long_texts_fill_prompts_as_long_as_the_papers():
    texts = prompts_of(PromptSet(set="long"))
    lengths = [len(embedded_pair().vocabulary.encode(each.text)) for each in texts]
    assert len(texts) == 10 and min(lengths) >= 1000 and len({each.hash for each in texts}) == 10
    assert Counter(each.kind for each in texts) == {"fiction": 4, "stories": 2, "encyclopedia": 2, "mathematics": 2}
    assert len(texts[0].hash) == 12 and {each.hash for each in texts}.isdisjoint(e.hash for e in load_prompts())


@pytest.mark.parametrize("file", sorted(GRIDS.glob("*.toml")), ids=lambda file: file.stem)
def test_the_grids_that_come_with_the_program_are_good(file):
    grid = read_grid(file)
    assert grid.prompts.set in ("samples", "long") and all(
        contestants(grid, sampling)[0] for sampling in grid.samplings
    )


def test_the_sweep_of_the_paper_has_450_settings():
    grid = read_grid(GRIDS / "fixed_tree_sweep.toml")
    ways, left_out = contestants(grid, Sampling())
    assert (len(ways) - 1) * len(grid.new_tokens) == 450 and not left_out


ODD = Grid(
    name='quotes " and \\ and \x7f, naïve 🌳\ttab',
    methods=(
        MethodAxis("dynatree@packed:base_depth=3", {"history": (True, False), "confidence_high": (0.7, 1e-05 + 0.8)}),
        MethodAxis("specinfer", {"widths": ("1,1,3", "2,2")}),
        MethodAxis("hf_generate"),
    ),
    prompts=PromptSet("/some where/prompts", None, (), (0, 128)),
    samplings=(Sampling(), Sampling(0.6, 0.9, 0.5, 7), Sampling(0.6, 0.9, 0.5, 8)),
    new_tokens=(16, 32),
    reference="",
    repeats=3,
    ignore_end_of_text=False,
    skip_contradictions=True,
    keep="tokens",
    pair={"device": "cpu", "context_length": 1024, "chat": False},
)


@pytest.mark.parametrize("file", sorted(GRIDS.glob("*.toml")), ids=lambda file: file.stem)
def test_every_grid_is_read_back_as_it_was(file, tmp_path):
    grid = read_grid(file)
    assert read_grid(write_grid(grid, tmp_path / "sweep")) == grid


def test_odd_names_and_values_survive(tmp_path):
    assert read_grid(write_grid(ODD, tmp_path)) == ODD
    assert [path.name for path in tmp_path.iterdir()] == ["grid.toml"]


def test_the_grid_of_an_experiment_is_known_again(tmp_path):
    with pytest.raises(ExperimentError, match="has no grid: start your own sweep"):
        kept_grid(tmp_path)
    (tmp_path / GRID).write_text(json.dumps(asdict(ODD)))
    assert kept_grid(tmp_path) == ODD
    for damaged in ("{", "{}", "[]"):
        (tmp_path / GRID).write_text(damaged)
        with pytest.raises(ExperimentError, match="start the sweep again; no result is lost"):
            kept_grid(tmp_path)
    (tmp_path / GRID).write_text(json.dumps(asdict(replace(ODD, methods=(MethodAxis("fixed_forest"),)))))
    with pytest.raises(ExperimentError, match="There is no method 'fixed_forest'"):
        kept_grid(tmp_path)


def test_a_full_disk_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError, match="cannot be written"):
        write_grid(ODD, tmp_path / "file" / "sweep")


def test_texts_are_split_into_parts_that_lose_nothing(tmp_path):
    for kind, text in (("one", "a b c\n\nd e"), ("two", "f g h i")):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "own.txt").write_text(text)
    found = prompts_of(PromptSet(set=str(tmp_path), parts=2))
    assert [(prompt.kind, prompt.name, prompt.text) for prompt in found] == [
        ("one", "own, part 1", "a b"), ("two", "own, part 1", "f g"),
        ("one", "own, part 2", "c\n\nd e"), ("two", "own, part 2", "h i"),
    ]  # fmt: skip
    assert len(prompts_of(PromptSet(set=str(tmp_path), parts=2, count=3))) == 3
    with pytest.raises(ExperimentError, match="two/own has 4 words, too few for 5 parts: choose fewer parts"):
        prompts_of(PromptSet(set=str(tmp_path), parts=5))
    with pytest.raises(ExperimentError, match="parts must be from 1 to 100, not 0"):
        grid_from({"methods": [{"method": "linear"}], "prompts": {"parts": 0}}, "x")


def test_the_size_is_that_of_the_plan(monkeypatch):
    monkeypatch.setattr("decoding.experiments.plan.MOST_TOGETHER", 4)
    monkeypatch.setattr("decoding.experiments.plan.MOST_TOGETHER", 4)
    content = {
        "new_tokens": [8, 16], "repeats": 2, "skip_contradictions": True, "pair": {"device": "cpu"},
        "prompts": {"count": 2, "kinds": ["stories"], "max_tokens": [16, 32], "parts": 2},
        "sampling": [{"temperature": 0.0}, {"temperature": 1.0}],
        "methods": [{"method": "dynatree", "vary": {"base_depth": [3, 6], "max_depth": [4, 6, 8]}}],
    }  # fmt: skip
    grid = grid_from(content, "size")
    size, plan = grid_size(grid), LocalExecutor(embedded_pair(), "size").plan(grid, prompts_of(grid.prompts))
    runs = [run for block in plan for run in block.runs]
    assert size.runs == len(runs) and size.prompts == 2 and size.settings == 2 * 4
    assert size.tokens == sum(len(block.runs) * block.conditions.new_tokens for block in plan)
    assert any(said.startswith("dynatree with base_depth=6, max_depth=4") for said in size.left_out)


def test_prompts_are_counted_without_a_network():
    methods = [{"method": "linear"}]
    assert grid_size(grid_from({"methods": methods, "prompts": {"set": "gsm8k", "count": 5}}, "x")).prompts == 5
    unknown = grid_size(grid_from({"methods": methods, "prompts": {"set": "pg-19"}}, "x"))
    assert (unknown.settings, unknown.prompts, unknown.runs, unknown.tokens) == (1, None, None, None)
    with pytest.raises(ExperimentError, match="There is no set of prompts '/nowhere'"):
        grid_size(grid_from({"methods": methods, "prompts": {"set": "/nowhere"}}, "x"))


def test_a_grid_without_sampling_is_refused():
    with pytest.raises(ExperimentError, match="names no sampling: give at least a temperature"):
        grid_from({"methods": [{"method": "linear"}], "sampling": []}, "x")


def test_what_is_unknown_is_never_left_out_as_a_contradiction():
    for entry, said in (
        ({"method": "fixed_forest"}, "There is no method 'fixed_forest'"),
        ({"method": "fixed_tree", "vary": {"depth": [2]}}, "has no setting 'depth'"),
        ({"method": "fixed_tree", "vary": {"max_depth": ["deep"]}}, "max_depth must be a whole number, not 'deep'"),
        ({"method": "fixed_tree", "vary": {"verifier": ["none"]}}, "unknown verifier 'none'"),
        ({"method": "fixed_tree", "vary": {"max_depth": [99]}}, "must be a whole number from 1 to 32"),
    ):
        with pytest.raises(ExperimentError, match=said):
            grid_from({"methods": [entry], "skip_contradictions": True}, "x")
    some = grid_from({"methods": [{"method": "fixed_tree", "vary": {"max_depth": [3, 99]}}],
                      "skip_contradictions": True}, "x")  # fmt: skip
    assert grid_size(some).settings == 1 and len(grid_size(some).left_out) == 1
