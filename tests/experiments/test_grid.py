"""Grids of experiments: what a TOML file comes to, and what is refused in one sentence."""

import tomllib

import pytest

from decoding.common.errors import ExperimentError, PromptError
from decoding.compare.contestants import format_contestant
from decoding.experiments import plan as prompt_sets
from decoding.experiments.experiment import GRIDS
from decoding.experiments.grid import PromptChoice, contestants, grid_from, read_grid
from decoding.experiments.plan import DATA_SETS, prompts_of, read_texts
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
method = "fixed_tree@lean:branching=2"
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
    assert grid.prompts == PromptChoice("samples", 3, ("stories", "fiction"), (0, 24))
    assert grid.samplings == (Sampling(seed=1), Sampling(seed=2), Sampling(0.8, 0.9))
    found = lines(grid)
    assert found[0] == "autoregressive" and found[-1] == "hf_generate" and len(found) == 6
    assert found[1] == "fixed_tree@lean:max_depth=3,branching=2"
    assert "fixed_tree@lean:max_depth=4,branching=2,prune_probability=0.0" in found
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
        ('[[methods]]\nmethod = "fixed_tree"\nvary = { max_depth = ["x"] }', "max_depth is a whole number, not 'x'"),
        (
            '[[methods]]\nmethod = "fixed_tree"\nvary = { max_depth = [] }',
            "max_depth of fixed_tree varies over no value",
        ),
        ('[[methods]]\nmethod = "hf_generate"\nvary = { max_depth = [1] }', "hf_generate has no settings"),
        ('[[methods]]\nname = "dynatree"', "has no 'name': choose method, vary"),
        ("[[methods]]\nmethod = 3", "needs method"),
        ('methods = "dynatree"', "methods is a list of tables"),
        ("colour = 1\n" + ONE, "the grid has no 'colour'"),
        ('new_tokens = ["many"]\n' + ONE, "new_tokens is a list of whole numbers from 1"),
        ("new_tokens = [0]\n" + ONE, "new_tokens is a list of whole numbers from 1"),
        ("repeats = 0\n" + ONE, "repeats is at least 1"),
        ("repeats = 2000000\n" + ONE, "at most 1,000,000"),
        ("reference = 5\n" + ONE, "reference is the name of a method"),
        ("ignore_end_of_text = 1\n" + ONE, "ignore_end_of_text is true or false"),
        ("prompts = 4\n" + ONE, "prompts is a table"),
        ("prompts.count = 0\n" + ONE, "count of prompts is at least 1"),
        ('prompts.kinds = "stories"\n' + ONE, "kinds is a list of texts"),
        ("sampling = [{ temperature = -1 }]\n" + ONE, "temperature must be 0, which decodes greedily"),
        ('sampling = [{ temperature = "hot" }]\n' + ONE, "temperature of .* is a number, not 'hot'"),
        ("sampling = [{ seed = 1 }]\n" + ONE, "has no 'seed'"),
        ('[pair]\nteacher = "x"\n' + ONE, "has no 'teacher'"),
        ('[pair]\nmax_memory_gib = "a"\n' + ONE, "value of another kind than is wanted: max_memory_gib = 'a'"),
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
        with pytest.raises(ExperimentError, match="is no TOML file"):
            read_grid(file)
    file.write_text(ONE)
    assert read_grid(file).name == "sweep"


def test_prompts_come_kind_by_kind(tmp_path):
    found = prompts_of(PromptChoice(count=3, kinds=("fiction", "stories")))
    assert [prompt.kind for prompt in found] == ["stories", "fiction", "stories"]
    (tmp_path / "own.txt").write_text("Some words.")
    assert [prompt.text for prompt in prompts_of(PromptChoice(set=str(tmp_path)))] == ["Some words."]
    with pytest.raises(ExperimentError, match="There is no set of prompts 'mine': choose samples, a folder"):
        prompts_of(PromptChoice(set="mine"))
    with pytest.raises(ExperimentError, match="No prompt of samples is of kind law: choose stories"):
        prompts_of(PromptChoice(kinds=("law",)))


def test_a_data_set_that_is_not_here_says_that_it_needs_a_network():
    with pytest.raises(ExperimentError, match=r"gsm8k \(openai/gsm8k\) is not kept on this machine .* connect"):
        prompts_of(PromptChoice(set="gsm8k", count=2))


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
    with pytest.raises(PromptError, match="holds no text"):
        read_texts(file, "wikitext-2", None)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *names, **more: str(file))
    pq.write_table(pa.table({"question": ["How many?"] * 3}), file)
    assert [p.name for p in prompts_of(PromptChoice(set="gsm8k", count=2))] == ["00000", "00001"]
    assert set(DATA_SETS) == {"wikitext-2", "pg-19", "gsm8k", "humaneval", "mt-bench", "cnn-dailymail"}
    assert prompt_sets.SAMPLES not in DATA_SETS


@pytest.mark.parametrize("file", sorted(GRIDS.glob("*.toml")), ids=lambda file: file.stem)
def test_the_grids_that_come_with_the_program_are_good(file):
    grid = read_grid(file)
    assert grid.prompts.set == "samples" and all(contestants(grid, sampling)[0] for sampling in grid.samplings)


def test_the_sweep_of_the_paper_has_450_settings():
    grid = read_grid(GRIDS / "fixed_tree_sweep.toml")
    ways, left_out = contestants(grid, Sampling())
    assert (len(ways) - 1) * len(grid.new_tokens) == 450 and not left_out
