"""Costs measured beside busy processes carry that load, are noticed and mended without anybody asking."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from decoding.common import other_work
from decoding.common.cost_model import QUIET, CostModel
from decoding.costs import measuring
from decoding.costs.measuring import COSTS, OtherWork, cost_model, machine_words, settle_doubts
from decoding.methods.methods import METHODS
from decoding.session.session import DecodeSession, Limits, unrecorded

pytestmark = pytest.mark.slow
SPIN = "while True: sum(range(10000))"
PER_CORE = 3  # so many busy processes leave a pass a quarter of a core


@contextmanager
def busy() -> Iterator[None]:
    """Processes that keep every core busy."""
    made = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(PER_CORE * (os.cpu_count() or 1))]
    try:
        watch = OtherWork()
        while watch.share() <= QUIET:  # they are starting
            pass
        yield
    finally:
        for each in made:
            each.kill()
            each.wait()


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """What is kept is this test's, and a busy machine is waited for as long as in the program."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("_known", "_trusted_until", "_said_until", "_doubts"):
        monkeypatch.setattr(measuring, name, {})
    monkeypatch.setattr(other_work, "WAIT_S", 1.0)


def kept(pair) -> CostModel:
    """What the file holds, as another process finds it."""
    measuring._known.clear()
    measuring._trusted_until.clear()
    return COSTS.known(pair, machine_words(pair))


def test_costs_measured_beside_busy_processes_are_noticed_and_mended(pair, capsys):
    with busy():
        poisoned = cost_model(pair, unrecorded)
    assert poisoned.others > QUIET and poisoned.beside and kept(pair) == poisoned
    waited, measured, said = capsys.readouterr().err.splitlines()
    assert "waiting for them, 1 s at most" in waited and measured.startswith("measuring how long passes take")
    assert f"measured beside other work: {poisoned.beside}." in said
    # However much else this machine has to do now: beside so many processes passes take several times as long, and
    # what did not slow them need not be mended.
    mended = cost_model(pair, unrecorded)
    ratio = float(poisoned.target.seconds(16) / mended.target.seconds(16))
    assert mended.corrected or ratio < measuring.AGREE
    assert bool(mended.corrected) == ("were measured again: " in capsys.readouterr().err)
    assert kept(pair) == mended


def test_a_run_that_poisoned_costs_do_not_fit_has_them_mended(pair, capsys):
    with busy():
        found = cost_model(pair, unrecorded)
    slow = replace(found, target=found.target.raised(20 * float(found.target.seconds(1))), others=0.0)
    key = measuring.calibration_file(pair, COSTS.kind), machine_words(pair)
    COSTS.of(pair, key[1], lambda: slow, again=True)
    measuring._trusted_until[key] = float("inf")
    assert cost_model(pair, unrecorded) == slow, "trusted"
    list(DecodeSession(pair, METHODS["linear"], pair.vocabulary.encode("One day"), limits=Limits(24, True)))
    ((_, costs),) = settle_doubts(unrecorded)
    assert "other work disturbed the machine then" in costs.corrected
    assert costs.target.seconds(1) < slow.target.seconds(1) / 2 and kept(pair) == costs
    assert f"were measured again: {costs.corrected}." in capsys.readouterr().err
