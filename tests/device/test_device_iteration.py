"""Iterations on the device draft the same trees, commit the same tokens and leave the same record as on the host."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import decoding.session.iteration
from benchmarks.fakes import make_checkpoint, make_pair
from decoding.common.errors import OutOfMemoryError
from decoding.device import iteration as device_iteration
from decoding.device.iteration import (
    DeviceIteration,
    DraftReadout,
    NextToken,
    accept,
    choose_iteration,
    keep_draft_rows,
    keep_target_rows,
    level_pass,
    next_pass,
    order_nodes,
    pending_pass,
    verify_pass,
)
from decoding.device.tree import BeamTree, LevelTree, device_rule
from decoding.drafters import DRAFTERS, DynaTreeDrafter, FixedTreeDrafter, LinearDrafter
from decoding.engines.cuda_graph import CudaGraphEngine, PassInputs, PassShape, host_pass
from decoding.engines.kv_cache import KVBlocks
from decoding.engines.packed import LlamaForward, NeoXForward
from decoding.methods.methods import METHODS, PRESETS
from decoding.models.pair import PairSettings, load_pair
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from tests.helpers.families import family
from tests.helpers.same_traces import differences
from tests.helpers.tape import TapeGraphs

PROMPTS = ("Once upon a time there was a cat who had two friends, a dog and", "The little girl said")
LINEAR, FIXED, DYNATREE = (METHODS[name] for name in ("linear", "fixed_tree", "dynatree"))
EAGLE = METHODS["eagle2"].with_settings(verifier="greedy")
METHODS_ON_DEVICE = {
    "autoregressive": METHODS["autoregressive"],
    "linear": LINEAR,
    "linear 1": LINEAR.with_settings(length=1),
    "linear 64": LINEAR.with_settings(length=64),
    "fixed tree": FIXED,
    "fixed tree, no pruning": FIXED.with_settings(prune_probability=0.0, max_depth=3, branching=2),
    "fixed tree, out of budget": FIXED.with_settings(
        prune_probability=0.0, max_depth=6, branching=4, node_budget=50, branch_first_level=True
    ),
    "fixed tree, wide": FIXED.with_settings(prune_probability=0.01, branch_first_level=True),
    "fixed tree, as printed": FIXED.with_settings(branch_first_level=True, verify_pruned=True),
    "dynatree": DYNATREE,
    "dynatree, as printed": DYNATREE.with_settings(branch_first_level=True, verify_pruned=True),
    "dynatree, wide": DYNATREE.with_settings(
        branch_first_level=True, stop_probability=0.01, prune_probability=0.005, base_depth=2
    ),
    "dynatree, breadth only": DYNATREE.with_settings(dynamic_depth=False, history=False),
    "dynatree, breadth and depth": DYNATREE.with_settings(history=False),
    "dynatree, depth only": DYNATREE.with_settings(adaptive_breadth=False, history=False, branch_first_level=True),
    "dynatree, plain": DYNATREE.with_settings(adaptive_breadth=False, dynamic_depth=False, prune_probability=0.0),
    "dynatree, out of budget": DYNATREE.with_settings(node_budget=7, branch_first_level=True, stop_probability=0.0),
    "dynatree, all adapt": DYNATREE.with_settings(
        branch_first_level=True, history_minimum=1, history_probability_step=0.2, history_confidence_low=True
    ),
    "dynatree, quick history": DYNATREE.with_settings(history_minimum=1, history_statistic="committed_over_drafted"),
    **{
        f"dynatree, {statistic}": DYNATREE.with_settings(history_minimum=1, history_statistic=statistic)
        for statistic in ("accepted_over_drafted_depth", "accepted_over_drafted", "committed_over_base_depth")
    },
    "dynatree, as the paper adapts": PRESETS["DynaTree, Algorithm 1 as printed"].with_settings(
        history_minimum=1, cache_policy="compaction"
    ),
    "eagle2": EAGLE,
    "eagle2, small": EAGLE.with_settings(node_budget=8, beam_width=3, max_depth=3),
    "eagle2, a chain": EAGLE.with_settings(node_budget=3, beam_width=1, max_depth=5),
    "eagle2, one level": EAGLE.with_settings(max_depth=1),
}
# Trees whose shape is known before the draft has said anything.
CERTAIN = ("autoregressive", "linear", "fixed tree, no", "fixed tree, out", "dynatree, plain", "eagle2")


@pytest.fixture(scope="module")
def static(embedded):
    return embedded.with_engine("cuda_graph")


@pytest.fixture
def on_host(monkeypatch):
    """Runs on the same static engine with the drafter's own numpy and the verifier's walk."""

    def run(pair, method, ids, sampling=None, **limits):
        with monkeypatch.context() as patch:
            patch.setattr(decoding.session.iteration, "choose_iteration", lambda *args: None)
            return finished(DecodeSession(pair, method, ids, sampling, Limits(**limits)))

    return run


def finished(session):
    for _ in session:
        pass
    return session


def prompt(pair, which=0):
    return pair.vocabulary.encode(PROMPTS[which])


def watch(monkeypatch):
    """Notes for each iteration whether it ran on the device."""
    kinds = []

    def choose(*args):
        kinds.append(choose_iteration(*args))
        return kinds[-1]

    monkeypatch.setattr(decoding.session.iteration, "choose_iteration", choose)
    return kinds


QUICK = ("linear", "dynatree, as printed", "eagle2, small")


@pytest.mark.parametrize("name", family(METHODS_ON_DEVICE, *QUICK))
def test_the_record_is_that_of_the_host(static, on_host, monkeypatch, name):
    method, ids = METHODS_ON_DEVICE[name], prompt(static)
    reference = on_host(static, method, ids, max_new_tokens=44, rows="full")
    kinds = watch(monkeypatch)
    session = finished(DecodeSession(static, method, ids, limits=Limits(max_new_tokens=44, rows="full")))
    assert differences(session.iterations, reference.iterations) == []
    assert session.tokens == reference.tokens and session.stopped == reference.stopped
    kind = NextToken if name == "autoregressive" else DeviceIteration
    ran = [isinstance(one, kind) for one in kinds]
    assert sum(ran) >= len(ran) - 1, "the prompt of a run without a draft, or the last token, run on the host"


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
@pytest.mark.parametrize("name", ["autoregressive", "dynatree, wide", *QUICK])
def test_other_architectures(tmp_path, on_host, architecture, name):
    target, draft = make_pair(tmp_path, architecture, noise=0.02)
    how = {"device": "cpu", "dtype": "float32", "context_length": 512, "engine": "cuda_graph"}
    pair = load_pair(PairSettings(str(target), str(draft), **how))
    ids, method = prompt(pair), METHODS_ON_DEVICE[name]
    reference = on_host(pair, method, ids, max_new_tokens=32)
    session = finished(DecodeSession(pair, method, ids, limits=Limits(max_new_tokens=32)))
    assert differences(session.iterations, reference.iterations) == []
    library = pair.with_engine("transformers")
    assert session.tokens == finished(DecodeSession(library, method, ids, limits=Limits(max_new_tokens=32))).tokens


@pytest.mark.slow
def test_a_draft_with_a_smaller_vocabulary(tmp_path, on_host):
    target = make_checkpoint(tmp_path / "target", "gpt_neox", vocab=4160)
    draft = make_checkpoint(tmp_path / "draft", "gpt_neox", seed=1)
    how = {"device": "cpu", "dtype": "float32", "context_length": 256, "engine": "cuda_graph"}
    pair = load_pair(PairSettings(str(target), str(draft), **how))
    for method in (LINEAR, METHODS_ON_DEVICE["dynatree, wide"], EAGLE):
        reference = on_host(pair, method, prompt(pair), max_new_tokens=16, rows="full")
        session = finished(DecodeSession(pair, method, prompt(pair), limits=Limits(max_new_tokens=16, rows="full")))
        assert differences(session.iterations, reference.iterations) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["autoregressive", "linear", "dynatree", "eagle2"])
def test_draft_temperature_and_records(static, on_host, name):
    method, ids, sampling = METHODS_ON_DEVICE[name], prompt(static, 1), Sampling(draft_temperature=0.6)
    for record in ("full", "summary", "none"):
        reference = on_host(static, method, ids, sampling, max_new_tokens=24, record=record)
        session = finished(DecodeSession(static, method, ids, sampling, Limits(max_new_tokens=24, record=record)))
        assert session.tokens == reference.tokens
        if record != "none":
            assert differences(session.iterations, reference.iterations) == []


@pytest.mark.parametrize("length", family((1, 2, 3, 5, 9), 1, 5))
def test_length_limits(static, on_host, length):
    for name in ("autoregressive", "linear", "fixed tree, wide", "dynatree, wide", "eagle2"):
        method, ids = METHODS_ON_DEVICE[name], prompt(static)
        reference = on_host(static, method, ids, max_new_tokens=length)
        session = finished(DecodeSession(static, method, ids, limits=Limits(max_new_tokens=length)))
        assert session.new_tokens == length and session.stopped == "length"
        assert differences(session.iterations, reference.iterations) == []


@pytest.mark.slow
def test_end_of_text_in_the_middle_of_a_path(static, on_host):
    ids, method = prompt(static), METHODS_ON_DEVICE["dynatree, wide"]
    output = on_host(static, method, ids, max_new_tokens=26, ignore_end_of_text=True).tokens[len(ids) :]
    stops, cut = static.vocabulary.stop_ids, set()
    try:
        for position in range(2, 24, 3):
            static.vocabulary.stop_ids = stops | {output[position]}
            reference = on_host(static, method, ids, max_new_tokens=26)
            session = finished(DecodeSession(static, method, ids, limits=Limits(max_new_tokens=26)))
            assert differences(session.iterations, reference.iterations) == []
            assert session._models.target_cache.length == len(session.tokens) - 1 >= session._models.draft_cache.length
            cut.add(session.iterations[-1].final_kind)
    finally:
        static.vocabulary.stop_ids = stops
    assert "none" in cut, "no stop token fell on an accepted node: the test tests nothing"


@pytest.mark.slow
def test_end_of_the_context(tmp_path, on_host):
    target, draft = make_pair(tmp_path, "llama", noise=0.02)
    how = {"device": "cpu", "dtype": "float32", "context_length": 48, "engine": "cuda_graph"}
    pair = load_pair(PairSettings(str(target), str(draft), **how))
    ids = (prompt(pair) * 4)[:30]
    for method in (LINEAR, METHODS_ON_DEVICE["fixed tree, wide"], EAGLE):
        reference = on_host(pair, method, ids, max_new_tokens=18, ignore_end_of_text=True)
        limits = Limits(max_new_tokens=18, ignore_end_of_text=True)
        session = finished(DecodeSession(pair, method, ids, limits=limits))
        assert len(session.tokens) == pair.context == 48
        assert differences(session.iterations, reference.iterations) == []


@pytest.mark.parametrize("name", family(METHODS_ON_DEVICE, "dynatree", "eagle2, small"))
def test_the_host_waits_once_and_once_per_level_where_it_must(static, name, monkeypatch):
    monkeypatch.setattr("decoding.session.session.doubt", lambda *_: None)  # once, when a run has ended
    session = DecodeSession(
        static, METHODS_ON_DEVICE[name], prompt(static), limits=Limits(max_new_tokens=40, record="summary")
    )
    session.step()  # without a draft the first pass reads the prompt
    transfers = [model.engine.transfers for model in (static.target, static.draft)]
    while session.new_tokens < session.limits.max_new_tokens - 1:
        before = sum(one.reads for one in transfers)
        with DeviceOnly(torch.device("cpu")) as traffic:
            iteration = session.step()
        reads = sum(one.reads for one in transfers) - before
        assert reads == 1 + (0 if name.startswith(CERTAIN) else iteration.draft_forwards)
        assert traffic.forbidden == [], "values were asked for besides the counted reads"


class DeviceOnly(TorchDispatchMode):
    """Notes operations that would wait for a device or bring memory of the host to it, which a capture forbids."""

    WAITING = ("item", "_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "_unique2")

    def __init__(self, device):
        super().__init__()
        self.forbidden, self._device = [], device

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        by_mask = name.startswith("index") and len(args) > 1 and _holds_mask(args[1])
        if name in self.WAITING or by_mask or any(t.device != self._device for t in tensors):
            self.forbidden.append(name)
        return func(*args, **(kwargs or {}))


def _holds_mask(indices):
    return isinstance(indices, list | tuple) and any(i is not None and i.dtype == torch.bool for i in indices)


def test_the_watch_sees_what_it_forbids():
    with DeviceOnly(torch.device("cpu")) as traffic:
        int(torch.ones(1))
        torch.ones(3)[torch.ones(3) > 0]
        with torch.inference_mode():
            int(torch.ones(1))
    assert traffic.forbidden == ["_local_scalar_dense", "index", "item"]
    with DeviceOnly(torch.device("meta")) as traffic:
        torch.ones(2).to("meta")
        torch.ones(2, device="meta") + torch.ones(())
    assert len(traffic.forbidden) == 2
    with pytest.raises(RuntimeError, match="meta"):
        torch.ones(1, device="meta").item()


@pytest.mark.parametrize(("architecture", "forward"), [("gpt_neox", NeoXForward), ("llama", LlamaForward)])
@pytest.mark.parametrize("beam", family((False, True), True))
def test_what_is_captured_asks_nothing_of_the_host(tmp_path, monkeypatch, architecture, forward, beam):
    """On a device whose values nobody can read and that no host tensor reaches, every captured function runs."""
    target, _ = make_pair(tmp_path, architecture)
    settings = PairSettings(str(target), str(target), device="cpu", dtype="float32", context_length=256)
    pair = load_pair(settings)
    device = torch.device("meta")
    network = pair.target.network.to(device)
    engine = CudaGraphEngine(forward(network, 256), pair.target.num_layers, device, torch.float32)
    run, blocks = engine.forward_pass, KVBlocks(pair.target.num_layers, 512, zeroed=True)
    tree = BeamTree(64, 3, 100, device) if beam else LevelTree(64, 3, device)
    shape = PassShape(queries=4, among=64, rows=256, kept=2)
    inputs, mask = PassInputs.on(shape, device), tree.mask_for(8, 256, torch.float32)
    asked = DraftReadout(pair.logits_size, 0.6, rows=True)
    static = torch.zeros(3, dtype=torch.int64, device=device)
    host_pass(run, blocks, inputs, shape)  # makes the blocks
    for name in ("tensor", "as_tensor", "from_numpy"):  # numbers of the host; no dispatch shows them
        monkeypatch.delattr(torch, name)
    with torch.inference_mode(), DeviceOnly(device) as traffic:
        for body in (
            partial(host_pass, run, blocks, inputs, shape),
            partial(pending_pass, run, blocks, tree, asked, 2, 256),
            partial(tree.grow, 1),
            partial(level_pass, run, blocks, tree, asked, 4, 256),
            partial(tree.grow, 4),
            *([tree.finish] if beam else []),
            partial(order_nodes, run, tree, 8, mask),
            partial(verify_pass, run, blocks, tree, 8, mask, True),
            partial(accept, tree, 8),
            partial(keep_target_rows, blocks, tree, 4),
            partial(keep_draft_rows, blocks, tree, 4),
            partial(next_pass, run, blocks, static, 256, True),
        ):
            body()
    assert traffic.forbidden == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "autoregressive", "dynatree, wide", "fixed tree", "eagle2", "rebuild"])
def test_graphs_repeat_what_was_captured(static, on_host, name):
    """With tapes in the place of CUDA graphs: addresses and sizes are frozen, and all that was computed is spoiled."""
    method = METHODS_ON_DEVICE.get(name, DYNATREE.with_settings(cache_policy="rebuild"))
    ids = prompt(static)
    limits = {"max_new_tokens": 10, "rows": "full"}
    references = [on_host(static, method, ids, **limits), on_host(static, method, prompt(static, 1), **limits)]
    engines = [static.target.engine, static.draft.engine]
    before = [engine.graphs for engine in engines]
    try:
        for engine in engines:
            engine.graphs = TapeGraphs(engine.device)
        for reference, which in zip([references[0], *references], (0, 0, 1), strict=True):
            session = DecodeSession(static, method, prompt(static, which), limits=Limits(**limits))
            session.step()
            other = session.fork()  # runs beside it, on blocks and graphs of its own
            while not session.finished:
                session.step()
                other.step()
            assert differences(session.iterations, reference.iterations) == []
            assert differences(other.iterations, reference.iterations) == []
        captured = [engine.graphs.captured for engine in engines]
        assert sum(captured) > (1 if name == "autoregressive" else 4)
        finished(DecodeSession(static, method, prompt(static, 1), limits=Limits(**limits)))
        again = finished(DecodeSession(static, method, prompt(static, 1), limits=Limits(**limits)))
        assert again.tokens == references[1].tokens
    finally:
        for engine, graphs in zip(engines, before, strict=True):
            engine.graphs = graphs


@pytest.mark.slow
def test_what_runs_on_the_host(static, monkeypatch):
    """Other verifiers, the rebuild policy, sampled chains, large trees, other engines: no iteration on the device."""
    ids = prompt(static)
    kinds = watch(monkeypatch)
    for method, sampling in (
        (METHODS["eagle2"], None),
        (DYNATREE.with_settings(cache_policy="rebuild"), None),
        (LINEAR.with_settings(sampled=True, verifier="naive"), Sampling(temperature=1.0)),
        (FIXED.with_settings(node_budget=2000), None),
        (METHODS["opt_tree"].with_settings(verifier="greedy"), None),
    ):
        session = DecodeSession(static, method, ids, sampling, Limits(max_new_tokens=10))
        session.step(), session.step()
    for engine in ("packed", "cuda_graph-host"):
        finished(DecodeSession(static.with_engine(engine), DYNATREE, ids, limits=Limits(max_new_tokens=10)))
    assert kinds and set(kinds) == {None}
    assert isinstance(_second(static, DYNATREE, kinds), DeviceIteration)


def _second(pair, method, kinds):
    session = DecodeSession(pair, method, prompt(pair), limits=Limits(max_new_tokens=10))
    session.step(), session.step()
    return kinds[-1]


def test_iterations_on_an_apple_gpu_run_on_the_host(static):
    """Trees on the device hold probabilities in float64, which it does not have."""
    session = DecodeSession(static, DYNATREE, prompt(static), limits=Limits(max_new_tokens=10))
    session.step()
    caches = (session._models.target_cache, session._models.draft_cache)
    models = {role: replace(getattr(static, role), device=torch.device("mps")) for role in ("target", "draft")}
    apple = replace(static, **models)
    for pair, expected in ((static, True), (apple, False)):
        chosen = choose_iteration(pair, DYNATREE, session._state, session.tokens, caches, 8, 1.0, False)
        assert isinstance(chosen, DeviceIteration) == expected


@pytest.mark.slow
def test_out_of_memory_in_the_middle_of_an_iteration(static, monkeypatch):
    session = DecodeSession(static, DYNATREE, prompt(static), limits=Limits(max_new_tokens=20))
    session.step()
    before = list(session.tokens)

    def full(*args):
        raise torch.OutOfMemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(device_iteration, "accept", full)
        with pytest.raises(OutOfMemoryError, match="node_budget"):
            session.step()
    assert session.tokens == before and session._models.target_cache.length == 0
    plain = DecodeSession(static, METHODS["autoregressive"], prompt(static), limits=Limits(max_new_tokens=20))
    assert finished(session).tokens == finished(plain).tokens


def test_the_draft_that_a_fork_lacks_reads_the_text_before_its_first_iteration(static, monkeypatch):
    ids = prompt(static)
    plain = DecodeSession(static, METHODS["autoregressive"], ids, limits=Limits(max_new_tokens=30))
    for _ in range(12):
        plain.step()
    kinds = watch(monkeypatch)
    tree = plain.fork(DYNATREE)
    tree.step(), tree.step()
    assert len(kinds) == 2 and all(isinstance(kind, DeviceIteration) for kind in kinds)
    assert finished(tree).tokens == finished(plain).tokens


def test_drafters_with_a_rule_and_the_limits_of_their_settings():
    ready = {name: kind() for name, kind in DRAFTERS.items()}
    ruled = {name for name, drafter in ready.items() if device_rule(drafter, drafter.start([]), 9) is not None}
    assert ruled == {"linear", "fixed_tree", "dynatree", "eagle2"}
    assert device_rule(LinearDrafter(sampled=True), None, 9) is None
    assert device_rule(LinearDrafter(length=64), None, 500).forwards == 64
    assert device_rule(FixedTreeDrafter(max_depth=32), None, 500).forwards == 33
    drafter = DynaTreeDrafter(max_depth=32)
    assert device_rule(drafter, drafter.start([]), 500).forwards == 33


@pytest.mark.parametrize("name", family(METHODS_ON_DEVICE, *QUICK))
def test_sizes_of_certain_rules_are_those_of_the_drafter(static, on_host, name):
    drafter = METHODS_ON_DEVICE[name].drafter
    rule = device_rule(drafter, drafter.start([]), 30)
    if name == "autoregressive":
        assert rule is None
        return
    assert rule.certain == name.startswith(CERTAIN)
    if rule.certain:
        iteration = on_host(static, METHODS_ON_DEVICE[name], prompt(static), max_new_tokens=31).iterations[0]
        levels = np.bincount([node.draft_level for node in iteration.nodes if node.draft_level is not None])
        assert rule.level_sizes == levels.tolist() and rule.tree_size == iteration.verified + 1
