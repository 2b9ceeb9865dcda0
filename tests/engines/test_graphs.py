"""How graphs are captured, kept and given up, on a device that is only noted down: its calls, in order."""

import warnings
from contextlib import contextmanager

import pytest
import torch

from decoding.compare import comparison
from decoding.compare.contestants import parse_contestant
from decoding.engines import graphs as module
from decoding.engines.cuda_graph import Transfers
from decoding.engines.graphs import Graphs
from decoding.models.pair import embedded_pair
from tests.helpers.tape import TapeGraphs

CLEAR, BEGIN, END = "clear workspaces", "begin", "end"


class Owner:
    """What graphs are bound to."""


@pytest.fixture
def device(monkeypatch):
    """Notes the calls that a CUDA device would get; `spoil` breaks captures as the driver does."""

    class Device:
        reported, stream, capturing, invalid, poisoned, broken = [], "usual", False, False, False, []

    class Graph:
        def capture_begin(self, pool, capture_error_mode):
            assert (pool, capture_error_mode, Device.stream) == ("pool", "thread_local", "capturing")
            Device.reported.append(BEGIN)
            Device.capturing = Device.poisoned = True

        def capture_end(self):
            Device.capturing = False
            if Device.invalid:
                Device.invalid = False
                raise RuntimeError("operation failed due to a previous error during capture")
            Device.reported.append(END)
            Device.poisoned = False

        def replay(self):
            assert not Device.poisoned, "PyTorch 2.11 takes the capture before for unfinished"
            Device.reported.append("replay")

        def pool(self):
            return "pool"

    class Stream:
        def __init__(self, _device):
            pass

        def wait_stream(self, _other):
            pass

    @contextmanager
    def stream(_stream):
        before, Device.stream = Device.stream, "capturing"
        try:
            yield
        finally:
            Device.stream = before

    def end_allocating(_device, pool):
        Device.reported.append(f"leave {pool}")

    for name, value in {
        "synchronize": lambda _device: None,
        "empty_cache": lambda: None,
        "CUDAGraph": Graph,
        "Stream": Stream,
        "stream": stream,
        "current_stream": lambda _device: Stream(None),
        "current_device": lambda: 0,
        "graph_pool_handle": lambda: "pool",
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *size, device: zeros(*size))
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: Device.reported.append(CLEAR), raising=False)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end_allocating, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda *_: Device.reported.append("release"), raising=False)
    monkeypatch.setattr(module, "_BROKEN", Device.broken)
    return Device


@pytest.fixture
def graphs(device):
    return Graphs(torch.device("cuda:0"))


def test_each_graph_owns_its_workspaces(device, graphs):
    """They are cleared just before and just after each capture, and at no other time."""
    owner = Owner()
    for key in ("a", "b"):
        for _ in range(3):
            graphs.call(owner, key, lambda key=key: device.reported.append(key))
    captured = [CLEAR, BEGIN, "a", END, CLEAR, "replay", "replay"]
    assert device.reported == [
        "a",
        *captured,
        "b",
        *(each.replace("a", "b") if each == "a" else each for each in captured),
    ]
    assert graphs.captured == 2 and graphs.cold == 4 and not graphs.failure


def waits(device):
    """A function that asks for a value, which a capture forbids: the capture is invalid from then on."""

    def body():
        device.reported.append("body")
        if device.capturing:
            device.invalid = True
            raise RuntimeError("operation not permitted when stream is capturing\nmore")

    return body


def test_a_failed_capture_is_ended_and_all_runs_uncaptured(device, graphs):
    owner = Owner()
    graphs.call(owner, "good", lambda: None)
    graphs.call(owner, "good", lambda: None)
    graphs.call(owner, "bad", waits(device))
    device.reported.clear()
    with pytest.warns(
        RuntimeWarning, match=r"\(operation not permitted when stream is capturing\): passes run without gr"
    ):
        graphs.call(owner, "bad", waits(device))
    reported = [CLEAR, BEGIN, "body", "leave pool", "release", BEGIN, END, CLEAR, "body"]
    assert device.reported == reported, "the work is done once, and a capture that succeeds comes last"
    assert device.stream == "usual" and not device.capturing and len(device.broken) == 1
    assert graphs.failure == "operation not permitted when stream is capturing" and not graphs.capture
    device.reported.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it was said once
        for key in ("bad", "good"):
            graphs.call(owner, key, lambda: device.reported.append("as it is"))
    assert device.reported == ["as it is"] * 2 and graphs.captured == 1


def test_a_failed_capture_leaves_the_graphs_of_others_alive(device, graphs):
    owner, others = Owner(), Graphs(torch.device("cuda:0"))
    for _ in range(2):
        others.call(owner, "good", lambda: None)
    graphs.call(owner, "bad", waits(device))
    with pytest.warns(RuntimeWarning, match="passes run without graphs"):
        graphs.call(owner, "bad", waits(device))
    others.call(owner, "good", lambda: None)
    assert device.reported[-1] == "replay" and others.captured == 1


def test_a_body_that_fails_by_itself_leaves_the_capture_ended(device, graphs):
    def body():
        if device.capturing:
            raise RuntimeError("shapes do not fit")

    owner = Owner()
    graphs.call(owner, "bad", body)
    with pytest.warns(RuntimeWarning, match="shapes do not fit"):
        graphs.call(owner, "bad", body)
    assert device.reported == [CLEAR, BEGIN, END, CLEAR] and device.stream == "usual" and not device.broken


def test_memory_that_runs_out_in_a_capture_is_reported(device, graphs):
    def body():
        if device.capturing:
            device.invalid = True
            raise torch.OutOfMemoryError("CUDA out of memory")

    owner = Owner()
    graphs.call(owner, "large", body)
    with pytest.raises(torch.OutOfMemoryError):
        graphs.call(owner, "large", body)
    assert graphs.capture and not graphs.failure and device.stream == "usual"


def test_the_graphs_used_last_are_kept(monkeypatch):
    monkeypatch.setattr(module, "MOST_GRAPHS", 3)
    graphs, owners = TapeGraphs(torch.device("cpu")), [Owner(), Owner()]
    total = torch.zeros(())

    def add(owner, key):
        graphs.call(owners[owner], key, lambda: total.add_(1))

    for owner, key in ((0, "a"), (1, "b"), (0, "c")):
        add(owner, key), add(owner, key)
    add(0, "a")  # used again: b was used longest ago
    add(1, "d"), add(1, "d")
    assert graphs.evicted == 1
    assert [set(graphs._graphs[owner]) for owner in owners] == [{"a", "c"}, {"d"}]
    before = graphs.captured
    add(1, "b"), add(0, "a")
    assert graphs.captured == before and total == 11, "an evicted one warms up again; no work is lost or done twice"
    add(1, "b")
    assert graphs.captured == before + 1 and graphs.evicted == 2


def test_reads_wait_for_an_event_and_not_for_the_stream(monkeypatch):
    """Waiting for a whole stream is what `torch.cuda.set_sync_debug_mode` raises at."""
    reported = []

    class Event:
        def record(self, stream):
            reported.append(f"after the copy on {stream}")

        def synchronize(self):
            reported.append("wait")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: "the stream")
    transfers = Transfers(torch.device("cpu"))
    transfers.staging, transfers.device = torch.empty_like, torch.device("cuda")
    assert transfers.read(torch.arange(3)).tolist() == [0, 1, 2]
    assert reported == ["after the copy on the stream", "wait"] and transfers.reads == 1


@pytest.mark.slow
@pytest.mark.parametrize(("tries", "clean"), [(3, True), (1, False)])
def test_a_call_is_measured_again_until_no_graph_is_made_during_it(monkeypatch, tries, clean):
    monkeypatch.setattr(comparison, "MOST_TRIES", tries)
    pair = embedded_pair()
    for model in (pair.target, pair.draft):
        engine = model.with_engine("cuda_graph").engine
        engine.graphs = TapeGraphs(model.device)
    contestants = [parse_contestant("autoregressive@cuda_graph"), parse_contestant("autoregressive")]
    prompts = [("one", pair.vocabulary.encode("One day"))]
    found = comparison.compare(pair, contestants, prompts, 6, repeats=1, warmup=0)
    assert pair.target.with_engine("cuda_graph").engine.graphs.cold > 0
    assert [result.cold == 0 for result in found.results] == [clean, True]
    assert found.results[0].output_ids == found.results[1].output_ids
