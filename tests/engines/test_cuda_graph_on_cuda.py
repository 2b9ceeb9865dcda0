"""What only a CUDA device can show: graphs give what the same passes give uncaptured, without a hidden wait."""

import argparse
import gc

import pytest
import torch

import decoding.session.iteration
from benchmarks.gpu import stale
from benchmarks.gpu.report import Report
from decoding.methods.methods import METHODS
from decoding.models.pair import embedded_pair, release
from decoding.session.session import DecodeSession, Limits
from tests.device.test_device_iteration import METHODS_ON_DEVICE, finished, prompt
from tests.engines.test_cuda_graph import tree_logits
from tests.helpers.same_traces import differences

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

HOST_METHODS = {
    "sequoia": METHODS["sequoia"].with_settings(acceptance="0.5,0.2,0.1"),
    "specexec": METHODS["specexec"],
    "rebuild": METHODS["dynatree"].with_settings(cache_policy="rebuild"),
}


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def pair(request):
    loaded = embedded_pair(device="cuda", dtype=request.param)
    assert loaded.target.engine.name == loaded.draft.engine.name == "cuda_graph", "auto means static here"
    return loaded


def run(pair, method, capture, **limits):
    graphs = [model.engine.graphs for model in (pair.target, pair.draft)]
    try:
        for one in graphs:
            one.capture = capture
        return finished(DecodeSession(pair, method, prompt(pair), limits=Limits(max_new_tokens=64, **limits)))
    finally:
        for one in graphs:
            one.capture = True


@pytest.mark.parametrize("name", [*METHODS_ON_DEVICE, *HOST_METHODS])
def test_captured_equals_uncaptured_on_the_same_sizes(pair, name):
    method = (METHODS_ON_DEVICE | HOST_METHODS)[name]
    reference = run(pair, method, capture=False, rows="full")
    captured = sum(model.engine.graphs.captured for model in (pair.target, pair.draft))
    for _ in range(3):  # as it is, captured, replayed
        session = run(pair, method, capture=True, rows="full")
        assert session.tokens == reference.tokens
        assert differences(session.iterations, reference.iterations) == []
    assert sum(model.engine.graphs.captured for model in (pair.target, pair.draft)) > captured or captured > 0


@pytest.mark.parametrize("name", METHODS_ON_DEVICE)
def test_the_device_gives_the_record_of_the_host(pair, monkeypatch, name):
    method = METHODS_ON_DEVICE[name]
    with monkeypatch.context() as patch:
        patch.setattr(decoding.session.iteration, "choose_iteration", lambda *args: None)
        reference = run(pair, method, capture=True, rows="full")
    assert differences(run(pair, method, capture=True, rows="full").iterations, reference.iterations) == []


@pytest.mark.parametrize("name", METHODS_ON_DEVICE)
def test_nothing_waits_but_the_counted_reads(pair, name):
    method = METHODS_ON_DEVICE[name]
    for _ in range(3):
        run(pair, method, capture=True, record="none")
    session = DecodeSession(pair, method, prompt(pair), limits=Limits(max_new_tokens=64, record="none"))
    session.step()
    transfers = pair.target.engine.transfers
    torch.cuda.set_sync_debug_mode("error")  # raises where PyTorch would wait by itself
    try:
        while session.new_tokens < session.limits.max_new_tokens - 1:
            before = transfers.reads
            session.step()
            assert transfers.reads - before <= 1 + getattr(method.drafter, "max_depth", 0) + 1
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(("past", "size"), [(1, 1), (30, 3), (239, 17), (256, 25), (20, 66)])
def test_logits_are_the_librarys(past, size):
    pair = embedded_pair(device="cuda")
    expected = tree_logits(pair.target.with_engine("transformers"), past, size)
    for _ in range(3):
        logits = tree_logits(pair.target, past, size)
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)
    release(pair)


def test_memory_goes_with_the_pair():
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    pair = embedded_pair(device="cuda")
    session = None
    for _ in range(3):
        session = run(pair, METHODS["dynatree"], capture=True)
    assert pair.target.engine.graphs.captured > 0
    session.release()
    release(pair)
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() - before < 2**20


@pytest.mark.parametrize("step", [stale.products, stale.pairs, stale.failed_capture])
def test_graphs_outlive_one_another_and_a_failed_capture(step):
    report = Report("stale", argparse.Namespace(json=None, save=False, minutes=5))
    step(report)
    assert not [line for line in report.lines() if line.startswith("wrong")]
