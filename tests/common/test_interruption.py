"""Long work ends where nobody wants it any more, and time that others take is no part of what is measured."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from decoding.analysis.budgets import budgets
from decoding.analysis.luck import rerolled
from decoding.common.interruption import CancelledError, in_one_piece, interruptible, others_begin, pause_point
from decoding.compare import comparison, hf_generate
from decoding.compare.comparison import measured_call, trees_on_prefix
from decoding.compare.contestants import Contestant
from decoding.compare.hf_generate import run_baseline
from decoding.costs.measured_pair import acceptance_by_rank, acceptance_odds
from decoding.costs.measuring import measure_costs
from decoding.methods.methods import METHODS
from decoding.sampling.sampling import Sampling
from decoding.session.cached_models import CachedModels
from decoding.session.session import DecodeSession, Limits, unrecorded

PROMPT = "Once upon a time there was a little dog"


class Ask:
    """Counts how often it is asked, and does not want the result from the `last` time on."""

    def __init__(self, last: int):
        self.last, self.asked = last, 0

    def __call__(self, may_wait: bool, timed: bool) -> float:
        self.asked += 1
        if self.asked >= self.last:
            raise CancelledError
        return 0.0


@pytest.mark.parametrize(
    "work",
    [
        lambda pair: acceptance_by_rank(pair, Sampling(0.7), [PROMPT]),
        lambda pair: acceptance_odds(pair, Sampling(), 4, [PROMPT, PROMPT]),
        lambda pair: measure_costs(pair, unrecorded),
    ],
    ids=["acceptance rates", "odds", "costs"],
)
def test_what_a_method_measures_first_can_be_cancelled(embedded, work):
    ask = Ask(last=2)
    with interruptible(ask), pytest.raises(CancelledError):
        work(embedded)
    assert ask.asked == 2


@pytest.fixture(scope="module")
def sampled(embedded):
    """A run whose verifier has to decide anew about every part of a tree."""
    method = METHODS["iid_paths"].with_settings(paths=3, length=2, verifier="specinfer")
    limits = Limits(8, rows="full")
    session = DecodeSession(embedded, method, embedded.vocabulary.encode(PROMPT), Sampling(1.0), limits)
    session.step()
    return session.trace()


@pytest.mark.parametrize(
    "work",
    [
        lambda pair, run: budgets(run, 0, None),
        lambda pair, run: rerolled(run, 0, 20),
        lambda pair, run: trees_on_prefix(pair, [METHODS["linear"]] * 2, list(run.prompt_ids)),
    ],
    ids=["parts of a tree", "re-rolled draws", "trees on a prefix"],
)
def test_what_is_asked_about_a_run_gives_turns_and_can_be_cancelled(embedded, sampled, work):
    ask = Ask(last=2)
    turns = interruptible(lambda may_wait, timed: ask(may_wait, timed) if may_wait else 0.0)
    with turns, pytest.raises(CancelledError):
        work(embedded, sampled)
    assert ask.asked == 2


@pytest.mark.parametrize(
    ("module", "contestant"),
    [
        (comparison, Contestant("Linear", method=METHODS["linear"])),
        (hf_generate, Contestant("generate", baseline="hf_generate")),
    ],
    ids=["a method", "generate"],
)
def test_the_clock_stands_while_others_have_a_turn(embedded, monkeypatch, module, contestant):
    """By a clock that ticks once per look: with pauses of a thousand ticks every time is as without."""
    ids = embedded.vocabulary.encode(PROMPT)

    def times(pause: float) -> tuple[float, ...]:
        ticks, paused = itertools.count(), []
        clock = SimpleNamespace(perf_counter=lambda: float(next(ticks)) + sum(paused))
        monkeypatch.setattr(module, "time", clock)

        def ask(may_wait: bool, timed: bool) -> float:
            if not may_wait:
                return 0.0
            assert timed, "what is measured is interrupted seldom"
            paused.append(pause)
            return pause

        with interruptible(ask):
            result = measured_call(embedded, contestant, ids, Limits(12, ignore_end_of_text=True))
        assert len(paused) > 1
        return result.metrics.wall_s, result.metrics.ttft_s

    assert times(1000.0) == times(0.0)


def test_what_others_draw_meanwhile_changes_no_sampled_baseline(embedded):
    ids = embedded.vocabulary.encode(PROMPT)

    def output(ask) -> tuple[int, ...]:
        with interruptible(ask):
            return run_baseline(embedded, "hf_generate", ids, 12, True, sampling=Sampling(1.0, seed=3)).output_ids

    def draw(may_wait: bool, timed: bool) -> float:
        torch.manual_seed(99)
        return 0.0

    assert output(draw) == output(lambda may_wait, timed: 0.0)


def test_a_peak_of_memory_is_reported_where_it_is_of_one_work_alone(embedded, monkeypatch):
    models = CachedModels(embedded, 16, uses_draft=True)
    models.pair = SimpleNamespace(target=SimpleNamespace(device=torch.device("cuda")))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 123)
    assert models.peak_memory() == 123
    others_begin()
    assert models.peak_memory() is None


class CountedCpu(str):
    """The CPU, called a device that counts its memory."""

    type = "cuda"


@pytest.mark.parametrize(("pause", "reported"), [(lambda: None, 123), (others_begin, None)], ids=["alone", "in turns"])
def test_a_baselines_peak_is_reported_where_it_had_the_device_alone(embedded, monkeypatch, pause, reported):
    target = SimpleNamespace(device=CountedCpu("cpu"), network=embedded.target.network)
    pair = SimpleNamespace(target=target, generation_config=embedded.generation_config)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 123)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    with interruptible(lambda may_wait, timed: pause() or 0.0):
        call = run_baseline(pair, "hf_generate", embedded.vocabulary.encode(PROMPT), 4, True)
    assert call.peak_memory_bytes == reported


def test_nothing_waits_in_one_piece():
    seen = []

    def ask(may_wait: bool, timed: bool) -> float:
        seen.append(may_wait)
        return 0.0

    with interruptible(ask):
        pause_point()
        with in_one_piece():
            pause_point()
        pause_point()
    assert seen == [True, False, True]
