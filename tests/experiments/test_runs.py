"""Grids that are run: interleaved, kept, stopped, gone on with, by one process and by several."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from decoding.common.errors import ExperimentError, JobError, PairError, PromptError, SettingsError, run_main
from decoding.compare.contestants import Contestant
from decoding.experiments import sweep
from decoding.experiments.executors import DeviceExecutor, LocalExecutor, RayExecutor, devices_here
from decoding.experiments.experiment import Experiment
from decoding.experiments.grid import grid_from, grid_toml
from decoding.experiments.plan import blocks, prompts_of, run_key
from decoding.experiments.rows import MEASURED, SERIES
from decoding.experiments.sweep import run_grid
from decoding.heads.store import HEADS, save_head
from decoding.jobs.job import SILENT, STATUS, Status
from decoding.methods.methods import METHODS
from decoding.models.pair import PairSettings, pair_identity
from decoding.selector.store import SELECTORS
from tests.helpers.heads import random_network
from tests.helpers.selectors import store

ROOT = Path(__file__).resolve().parents[2]
CONTENT = {
    "name": "try",
    "new_tokens": [8],
    "prompts": {"count": 2, "kinds": ["stories", "fiction"], "max_tokens": [16]},
    "pair": {"device": "cpu"},
    "methods": [{"method": "fixed_tree:max_depth=2", "vary": {"branching": [2, 3]}}, {"method": "hf_generate"}],
}
TIMES = {"started", *SERIES, *(f"{start}{name}" for start in ("", "loop_free_") for name in MEASURED
                               if name.endswith(("_s", "throughput", "_bytes")))}  # fmt: skip
TIMES -= {"accepted_lengths", "drafted_nodes", "committed_tokens"}


@pytest.fixture
def executor(pair):
    return LocalExecutor(pair, "try")


def grid(**changes):
    return grid_from({**CONTENT, **changes}, "try")


def kept(folder):
    return Experiment(folder).store.frame()


def without_times(frame):
    """What has to be the same wherever and whenever a run is made, in the order of the keys."""
    plain = frame.drop(columns=[name for name in frame if name in TIMES]).sort_values("key").reset_index(drop=True)
    plain["machine"] = plain["machine"].str.replace(r"\d+ threads?", "threads", regex=True)  # workers share the cores
    return json.loads(plain.to_json(orient="records"))


def test_methods_take_turns_on_every_prompt(executor, tmp_path):
    heard = []
    ended = run_grid(grid(), executor, tmp_path, heard.append)
    assert (ended.state, ended.done, ended.total, ended.failed) == ("finished", 8, 8, 0)
    frame = kept(tmp_path)
    assert frame["method"].tolist() == ["autoregressive", "fixed_tree", "fixed_tree", "hf_generate"] * 2
    assert frame["prompt"].nunique() == 2 and frame["block"].tolist()[0:4] == [frame["block"][0]] * 4
    assert frame["reference"].tolist() == [True, False, False, False] * 2
    assert (frame["new_tokens"] == 8).all() and (frame["prompt_tokens"] == 16).all() and frame["failure"].isna().all()
    assert all(ids.tolist() == frame["output_ids"][4 * (n // 4)].tolist() for n, ids in enumerate(frame["output_ids"]))
    assert frame["settings.branching"].tolist()[1:3] == [2, 3] and (frame["throughput"] > 0).all()
    assert (frame["draft_passes_s"][1:3] > 0).all() and (frame["draft_passes_s"] < frame["draft_s"])[1:3].all()
    assert frame["draft_passes_s"].isna()[[0, 3]].all(), "without a draft, and of baselines, nothing is known"
    assert [status.done for status in heard] == list(range(1, 9)) and heard[0].left_s > heard[-1].left_s == 0
    assert all((each > 0).all() for each in frame["pass_us"])
    for series_us, wall_s in zip(frame["pass_us"], frame["wall_s"], strict=True):
        # A figure is rounded to 12 bits, the end of a series to a microsecond.
        assert abs(sum(series_us) - 1e6 * wall_s) <= 2**-13 * 1e6 * wall_s + 1
    assert Experiment(tmp_path).status().state == "finished"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keep", "left_out"),
    [("tokens", SERIES), ("figures", (*SERIES, "output_ids"))],
)
def test_a_grid_says_what_is_kept_of_a_run(executor, tmp_path, keep, left_out):
    run_grid(grid(keep=keep), executor, tmp_path)
    frame = kept(tmp_path)
    assert frame[list(left_out)].isna().all(axis=None) and (frame["throughput"] > 0).all()
    assert frame["output_ids"].notna().all() == (keep == "tokens")
    with pytest.raises(ExperimentError, match="keep must be one of figures, tokens, all, not 'nothing'"):
        grid(keep="nothing")


def test_what_is_kept_is_not_run_again(executor, tmp_path, monkeypatch):
    counted = []
    with monkeypatch.context() as patch:
        patch.setattr(Experiment, "asked_to_stop", lambda _: len(counted) > 20 or counted.append(1))
        first = run_grid(grid(), executor, tmp_path)
    assert first.state == "stopped" and 0 < first.done < 8
    before = kept(tmp_path)
    assert len(before) == first.done
    monkeypatch.setattr(sweep, "FLUSH_S", 0.0)
    assert run_grid(grid(), executor, tmp_path).done == 8
    after = kept(tmp_path)
    assert after["key"].is_unique and after.head(len(before))["started"].tolist() == before["started"].tolist()
    again = []
    assert run_grid(grid(), executor, tmp_path, again.append).done == 8 and not again
    more = grid(methods=[*CONTENT["methods"], {"method": "linear"}])
    assert run_grid(more, executor, tmp_path, again.append).total == 10 and len(again) == 2
    assert kept(tmp_path)["method"].tolist().count("autoregressive") == 2


@pytest.mark.slow
def test_a_long_block_has_a_reference_in_every_part(executor, tmp_path, monkeypatch):
    monkeypatch.setattr("decoding.experiments.plan.MOST_TOGETHER", 2)
    run_grid(grid(), executor, tmp_path)
    frame = kept(tmp_path)
    assert frame.groupby("block")["reference"].sum().tolist() == [1] * 4 and frame["key"].is_unique


def test_a_prompt_that_does_not_fit_is_named(executor, tmp_path):
    with pytest.raises(PromptError, match=r"stories/\w+: .* exceed the context of 2560"):
        run_grid(grid(new_tokens=[2559]), executor, tmp_path)
    assert not (tmp_path / "status.json").exists()


def test_what_cannot_be_run_is_a_row_that_says_why(pair, executor, tmp_path, monkeypatch):
    from decoding.compare import comparison

    def call(pair, contestant, *rest):
        if contestant.baseline:
            raise MemoryError
        return real(pair, contestant, *rest)

    real = comparison._call
    monkeypatch.setattr(comparison, "_call", call)
    ended = run_grid(grid(), executor, tmp_path)
    assert (ended.state, ended.failed) == ("finished", 2)
    failures = kept(tmp_path).set_index("method")["failure"]["hf_generate"]
    assert failures.str.contains("ran out of memory").all()


@pytest.mark.slow
def test_what_could_not_be_run_is_reported_again(executor, tmp_path):
    run_grid(grid(), executor, tmp_path)
    store = Experiment(tmp_path).store
    rows = store.table().to_pylist()
    rows[1]["failure"] = "no room"
    for part in store._files():
        part.unlink()
    store.append(rows)
    assert run_grid(grid(), executor, tmp_path).failed == 1


@pytest.mark.slow
def test_rows_that_cannot_be_kept_end_it_as_failed(executor, tmp_path, monkeypatch):
    def refuse(self, rows):
        if rows:
            raise OverflowError("Value too large")

    monkeypatch.setattr("decoding.experiments.rows.RowStore.append", refuse)
    with pytest.raises(OverflowError):
        run_grid(grid(), executor, tmp_path)
    assert Experiment(tmp_path).status().state == "failed"


def test_one_process_at_a_time(executor, tmp_path):
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    experiment = Experiment(tmp_path)
    try:
        experiment.path.mkdir(exist_ok=True)
        status = {**vars(Status("running")), "pid": other.pid, "written": time.time()}
        (tmp_path / STATUS).write_text(json.dumps(status))
        with pytest.raises(JobError, match=f"Process {other.pid} is running "):
            run_grid(grid(), executor, tmp_path)
    finally:
        other.kill()
        other.wait()
    assert (experiment.status().state, experiment.status().message) == ("failed", SILENT)


@pytest.mark.slow
def test_somebody_may_ask_it_to_stop(executor, tmp_path):
    experiment = Experiment(tmp_path)
    ended = run_grid(grid(), executor, tmp_path, lambda status: status.done == 3 and experiment.ask_to_stop())
    assert (ended.state, ended.done) == ("stopped", 3) and len(kept(tmp_path)) == 3
    assert run_grid(grid(), executor, tmp_path).state == "finished", "the wish was for the earlier one"


def test_mistakes_are_not_hidden(executor, tmp_path):
    def report(status):
        raise ZeroDivisionError("oh")

    with pytest.raises(ZeroDivisionError):
        run_grid(grid(), executor, tmp_path, report)
    said = "It failed with ZeroDivisionError: its output says where."
    assert Experiment(tmp_path).status().message == said and len(kept(tmp_path)) == 1


def test_the_same_run_has_the_same_key_whatever_else_is_in_the_grid(pair):
    from decoding.experiments import plan

    identity, some = pair_identity(pair), grid()
    (one, *_) = blocks(some, pair, identity, prompts_of(some.prompts))
    key = run_key(identity, one.conditions, Contestant("x", METHODS["linear"]))
    assert key == run_key(identity, replace(one.conditions), Contestant("y", METHODS["linear"]))
    settings = dict(sorted(METHODS["linear"].settings().items()))
    former = plan._digest([identity, one.conditions.digest, "linear", settings, "lean"])
    assert run_key(identity, one.conditions, Contestant("x", METHODS["linear"], engine="packed")) == former
    others = [
        run_key({**identity, "name": "z"}, one.conditions, Contestant("x", METHODS["linear"])),
        run_key(identity, replace(one.conditions, repeat=1), Contestant("x", METHODS["linear"])),
        run_key(identity, replace(one.conditions, ids=(1, 2)), Contestant("x", METHODS["linear"])),
        run_key(identity, one.conditions, Contestant("x", METHODS["linear"], engine="packed")),
        run_key(identity, one.conditions, Contestant("x", METHODS["linear"].with_settings(length=3))),
    ]
    assert len({key, *others}) == 6


def test_a_selector_trained_anew_makes_other_runs(pair, tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path))
    identity, some = pair_identity(pair), grid()
    (one, *_) = blocks(some, pair, identity, prompts_of(some.prompts))
    contestant = Contestant("x", METHODS["delayed"].with_settings(selector="mine"))
    keys = []
    for seed in (0, 1, 0):
        store(tmp_path / "mine" / "selector", pair, seed=seed)
        keys.append(run_key(identity, one.conditions, contestant))
    assert keys[0] == keys[2] != keys[1]
    (tmp_path / "mine" / "selector" / SELECTORS.weights).unlink()
    with pytest.raises(PairError, match=r"The selector in .* is damaged"):
        run_key(identity, one.conditions, contestant)


def test_a_draft_head_trained_anew_makes_other_runs_and_those_of_the_program_are_known_by_name(
    pair, tmp_path, monkeypatch
):
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path))
    identity, some = pair_identity(pair), grid()
    (one, *_) = blocks(some, pair, identity, prompts_of(some.prompts))

    def key(name: str) -> str:
        return run_key(identity, one.conditions, Contestant("x", METHODS["linear"].with_settings(draft_head=name)))

    keys, folder = [], tmp_path / "mine" / "head"
    for seed in (0, 1, 0):
        save_head(folder, random_network(pair, seed), "talf", identity, "2030-01-02", {})
        keys.append(key("mine"))
    assert keys[0] == keys[2] != keys[1]
    monkeypatch.setattr(type(HEADS), "digest", lambda kind, folder: pytest.fail("weights of the program were read"))
    assert key("talf") != key("")
    with pytest.raises(SettingsError, match="no draft head"):
        key("yours")


def command(folder: Path, content: str | None = None) -> subprocess.Popen:
    """Run a grid, or without one what the one that was run last still lacks."""
    asked = "--resume"
    if content is not None:
        asked = str(folder / "grid.toml")
        Path(asked).write_text(content)
    words = [sys.executable, "-m", "benchmarks.sweep", asked, "--out", str(folder / "out")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


TOML = """
new_tokens = [8]
[prompts]
count = 2
max_tokens = [16]
[[methods]]
method = "fixed_tree"
vary = { max_depth = [2, 3, 4], branching = [2, 3, 4] }
[pair]
device = "cpu"
"""


@pytest.mark.slow
def test_a_killed_command_goes_on_and_no_row_is_lost_or_doubled(tmp_path):
    content, out = TOML.replace("new_tokens = [8]", "new_tokens = [96]"), tmp_path / "out"
    run = command(tmp_path, content)
    deadline = time.monotonic() + 90
    while not list(out.glob("rows/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.02)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    killed = kept(out)["key"].tolist()
    assert 0 < len(killed) < 20 and Experiment(out).status().state == "failed"
    run = command(tmp_path, content)
    while " of 20" not in run.stdout.readline():
        assert run.poll() is None
    run.send_signal(signal.SIGTERM)
    said = run.communicate()[0]
    stopped = kept(out)["key"].tolist()
    assert run.returncode == 1 and "Stopped; resume runs" in said and len(killed) < len(stopped) < 20, said
    assert len(list(out.glob("rows/*.parquet"))) == 1  # put together
    said = command(tmp_path).communicate()[0]
    assert "20 of 20 runs; finished" in said, said
    whole = kept(out)["key"]
    assert len(whole) == 20 and whole.is_unique and set(killed) < set(stopped) < set(whole)


def test_what_the_command_refuses_is_one_sentence(tmp_path, monkeypatch, capsys):
    file = tmp_path / "grid.toml"
    file.write_text(TOML.replace("max_depth", "depth"))
    monkeypatch.setattr(sys, "argv", ["sweep", str(file)])
    with pytest.raises(SystemExit) as ended:
        run_main(sweep.main)
    assert ended.value.code == 2 and capsys.readouterr().err.startswith("error: fixed_tree with depth=2")
    file.write_text(TOML)
    monkeypatch.setattr(sys, "argv", ["sweep", str(file), "--dry-run", "--count", "1"])
    assert sweep.main() == 0 and "10 configurations x 1 lengths x 1 repeats, 1 prompts" in capsys.readouterr().out
    for words in (["--resume"], [], [str(file), "--resume", "--out", str(tmp_path)]):
        monkeypatch.setattr(sys, "argv", ["sweep", *words])
        with pytest.raises(ExperimentError, match="Name a grid, or with --resume the folder to resume"):
            sweep.main()


@pytest.mark.slow
def test_two_devices_give_the_same_rows(executor, tmp_path):
    run_grid(grid(), executor, tmp_path / "one")
    both = DeviceExecutor(PairSettings(device="cpu"), ("cpu", "cpu"), "try")
    try:
        assert run_grid(grid(), both, tmp_path / "two").state == "finished"
        with pytest.raises(ExperimentError, match="There is no method"):
            both.plan(replace(grid(), reference="none"), [])
    finally:
        both.close()
    one, two = kept(tmp_path / "one"), kept(tmp_path / "two")
    assert without_times(one) == without_times(two) and len(one) == 8
    assert devices_here(PairSettings(device="cpu")) == ("cpu",)


@pytest.mark.slow
def test_two_workers_on_ray_give_the_same_rows(executor, tmp_path):
    if not os.environ.get("DRAFTSCOPE_REQUIRE_RAY"):
        pytest.importorskip("ray")
    run_grid(grid(), executor, tmp_path / "one")
    workers = RayExecutor(PairSettings(device="cpu"), "try", workers=2)
    try:
        assert run_grid(grid(), workers, tmp_path / "two").state == "finished"
    finally:
        workers.close()
    assert without_times(kept(tmp_path / "one")) == without_times(kept(tmp_path / "two"))


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExperimentError, match="needs the package ray: pip install ray"):
        RayExecutor(PairSettings(), "try")


def test_a_named_gpu_gets_a_process_that_sees_it_alone(monkeypatch, tmp_path):
    chosen = []
    monkeypatch.setattr(
        sweep, "DeviceExecutor", lambda settings, devices, name: chosen.append(devices) or closing_crew()
    )
    monkeypatch.setattr(sweep, "load_pair", lambda settings: chosen.append(settings.device))
    monkeypatch.setattr(sweep, "LocalExecutor", lambda pair, name: closing_crew())
    for devices in ("cuda:1", "cpu"):
        with sweep.executor_for(sweep.parser().parse_args([str(tmp_path / "x.toml"), "--devices", devices]), grid()):
            pass
    assert chosen == [("cuda:1",), "cpu"]


def closing_crew():
    return SimpleNamespace(close=lambda: None)


def test_a_grid_is_run_with_a_wide_target_and_other_texts(tmp_path):
    file = tmp_path / "x.toml"
    file.write_text(grid_toml(grid()))
    asked, _ = sweep.grid_of(
        sweep.parser().parse_args([str(file), "--widen", "4", "--prompts", "long", "--count", "2"])
    )
    assert asked.pair_settings.widen == 4 and (asked.prompts.set, asked.prompts.count) == ("long", 2)
    assert sweep.grid_of(sweep.parser().parse_args([str(file)]))[0].pair_settings.widen == 1
