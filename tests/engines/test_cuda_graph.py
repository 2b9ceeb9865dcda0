"""Padded passes over rows at fixed addresses give the library's logits and texts, whatever runs beside them."""

import gc
import warnings
import weakref

import numpy as np
import pytest
import torch

from benchmarks.fakes import make_pair
from decoding.common.errors import PairError
from decoding.engines import choose
from decoding.engines.base import TransformersForward, Visibility
from decoding.engines.cuda_graph import (
    BUCKETS,
    IDLE_BLOCKS,
    LARGEST,
    LONGEST_CHAIN,
    CudaGraphEngine,
    PassShape,
    bucket,
    row_bucket,
    visible_rows,
)
from decoding.methods.methods import METHODS
from decoding.models.pair import PairSettings, embedded_pair, load_pair, release, tree_forward
from decoding.session.session import DecodeSession, Limits
from tests.helpers.families import MEASURED, family
from tests.helpers.tape import TapeGraphs

PACKED = ("GPTNeoXForCausalLM", "LlamaForCausalLM", "Qwen2ForCausalLM")
PROMPT = "Once upon a time there was a cat who had two friends, a dog and"


@pytest.fixture
def static():
    """The embedded pair with engines that nothing has used yet."""
    return embedded_pair().with_engine("cuda_graph")


@pytest.fixture(
    scope="module", params=family(("gpt_neox", "llama", "qwen2", "gpt2", "gemma3", "llama eager"), "gpt_neox", "llama")
)
def tiny(request, tmp_path_factory):
    """Lean forwards, the library's, a dict of masks, and additive masks."""
    architecture, *attention = request.param.split()
    target, draft = make_pair(tmp_path_factory.mktemp(architecture), architecture)
    how = {"attention": attention[0]} if attention else {}
    context = 400 if architecture == "gemma3" else 1024
    settings = PairSettings(str(target), str(draft), device="cpu", dtype="float32", context_length=context, **how)
    return load_pair(settings).target


def random_tree(size, seed=0):
    """Depths `[size]` and bool `[size, size]`: who sees whom in a tree whose parents are drawn."""
    draw = np.random.default_rng(seed)
    seen, depths = np.eye(size, dtype=bool), np.zeros(size, dtype=int)
    for node in range(1, size):
        parent = draw.integers(max(0, node - 6), node)
        seen[node] |= seen[parent]
        depths[node] = depths[parent] + 1
    return depths, seen


def tree_logits(model, past, size, keep=0, level=None):
    """Logits of a tree behind `past` rows, at once or with the nodes from `level` on in a second pass."""
    vocab, (depths, seen) = model.info.vocab_size, random_tree(size)
    ids = (np.arange(past + size) * 37 + 11) % vocab
    cache = model.engine.new_cache(past + size)
    with torch.inference_mode():
        tree_forward(model, cache, ids[:past], np.arange(past), Visibility.causal(0, past), keep=1)
        rows = []
        for first, end in ((0, size),) if level is None else ((0, level), (level, size)):
            tokens, mask = ids[past + first : past + end], Visibility(past, seen[first:end, :end])
            rows.append(tree_forward(model, cache, tokens, past + depths[first:end], mask, keep))
    assert cache.length == past + size
    return torch.cat(rows)


@pytest.mark.parametrize(
    ("past", "size"), [(1, 1), (30, 2), (7, 3), (239, 17), (240, 16), (255, 1), (256, 25), (20, 66)]
)
def test_logits_are_those_of_the_eager_pass(tiny, past, size):
    static = tiny.with_engine("cuda_graph")
    assert static.engine.name == static.info.engine == "cuda_graph"
    eager = tiny.with_engine("auto")
    assert eager.engine.name == (
        "packed" if tiny.info.architecture in PACKED and tiny.mask_kind == "bool" else "transformers"
    )
    keep = min(size, 3)
    expected = tree_logits(eager, past, size)
    torch.testing.assert_close(tree_logits(static, past, size), expected, rtol=0, atol=5e-5)  # logits reach 20 here
    torch.testing.assert_close(tree_logits(static, past, size, keep), expected[-keep:], rtol=0, atol=5e-5)
    library = tree_logits(tiny.with_engine("transformers"), past, size)
    torch.testing.assert_close(expected, library, rtol=0, atol=5e-5)


@pytest.mark.parametrize("size", sorted({bucket(n) + d for n in (1, 4, 8, 16, 48, 64, 96) for d in (0, 1)}))
def test_logits_at_the_borders_of_the_sizes(embedded, size):
    static, eager = embedded.draft.with_engine("cuda_graph"), embedded.draft.with_engine("packed")
    level = max(size // 2, 1) if size > 1 else None
    expected = tree_logits(eager, 40, size, level=level)
    torch.testing.assert_close(tree_logits(static, 40, size, level=level), expected, rtol=0, atol=5e-5)


def test_who_sees_whom_among_padded_queries():
    past, rows, among = 5, 16, np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0]], dtype=bool)
    padded = torch.zeros((4, 8), dtype=torch.bool)
    padded[:3, :4] = torch.from_numpy(among)
    slots = torch.arange(6, 10)  # one row behind the past was there before
    seen = visible_rows(torch.tensor([past]), padded, slots, rows).numpy()
    for query in range(4):
        for row in range(rows):
            listed = query < 3 and 0 <= row - past < 4 and among[query, row - past]
            assert seen[query, row] == (row < past or listed or row == slots[query])


def test_library_forward_in_static_shapes(embedded):
    """What runs on CUDA where there is no lean forward."""
    model = embedded.target
    engine = CudaGraphEngine(TransformersForward(model.network), model.num_layers, model.device, model.dtype)
    cache, ids = engine.new_cache(16), np.arange(12) * 31
    seen = Visibility.causal(0, 12)
    logits = engine.run(cache, ids, np.arange(12), seen, 5)
    lean = model.with_engine("packed").engine
    reference = lean.run(lean.new_cache(16), ids, np.arange(12), lean.mask(seen), 5)
    torch.testing.assert_close(logits, reference, rtol=0, atol=2e-5)


def test_sizes_hold_what_is_asked_for_and_are_few():
    for count in range(1, 3 * LARGEST):
        assert bucket(count) >= count and bucket(bucket(count)) == bucket(count)
        assert bucket(count) in BUCKETS or bucket(count) % LARGEST == 0
    rows = [row_bucket(length) for length in range(1, 20_000)]
    assert rows == sorted(rows) and all(row_bucket(size) == size for size in set(rows))
    assert all(0 <= size - length < max(256, length / 4) for length, size in enumerate(rows, start=1))


def test_prompts_run_at_their_own_size_and_chains_do_not():
    chain, prompt = (PassShape.of(Visibility.causal(10, n), 1) for n in (LONGEST_CHAIN, LONGEST_CHAIN + 1))
    assert chain.recurs and chain.queries == bucket(LONGEST_CHAIN)
    assert not prompt.recurs and prompt.queries == LONGEST_CHAIN + 1
    tree = PassShape.of(Visibility(10, random_tree(LONGEST_CHAIN + 1)[1]), 4)
    assert tree == PassShape(queries=96, among=96, rows=256, kept=4)


@pytest.mark.parametrize("name", family(METHODS, "autoregressive", "dynatree"))
def test_every_method_writes_the_librarys_text(embedded, name):
    method = METHODS[name].with_settings(**MEASURED.get(name, {}))
    texts = []
    for engine in ("transformers", "cuda_graph"):
        pair = embedded.with_engine(engine)
        session = DecodeSession(pair, method, pair.vocabulary.encode(PROMPT), limits=Limits(max_new_tokens=24))
        list(session)
        texts.append(session.tokens)
    assert texts[0] == texts[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ("dynatree", "sequoia"))
def test_forks_and_peeks_leave_each_other_alone(static, name):
    method = METHODS[name].with_settings(**MEASURED.get(name, {}))
    ids = static.vocabulary.encode(PROMPT)
    alone = DecodeSession(static, method, ids, limits=Limits(max_new_tokens=40))
    expected = [i.committed_ids for i in alone]
    session = DecodeSession(static, method, ids, limits=Limits(max_new_tokens=40))
    for _ in range(3):
        session.step()
    session.peek()
    forked = session.fork()
    blocks = [cache.blocks for s in (session, forked) for cache in (s._models.target_cache, s._models.draft_cache)]
    assert len({id(b) for b in blocks}) == 4
    while not (session.finished and forked.finished):
        for one in (session, forked):
            if not one.finished:
                one.step()
                one.peek() if not one.finished else None
    assert [i.committed_ids for i in session.iterations] == [i.committed_ids for i in forked.iterations] == expected


@pytest.mark.slow
def test_blocks_are_used_again_and_never_by_two(static):
    engine = static.target.engine
    caches = [engine.new_cache(100) for _ in range(IDLE_BLOCKS + 2)]
    for cache in caches:
        cache.reserve(1)
    blocks = [cache.blocks for cache in caches]
    assert len(set(blocks)) == len(caches)
    del cache, caches
    again = [engine.new_cache(100) for _ in range(IDLE_BLOCKS + 1)]
    for cache in again:
        cache.reserve(1)
    assert len({cache.blocks for cache in again}) == len(again)
    assert len({cache.blocks for cache in again} & set(blocks)) == IDLE_BLOCKS
    larger = engine.new_cache(3000)
    larger.reserve(1)
    assert larger.capacity >= 3000 and row_bucket(larger.capacity) == larger.capacity


def test_growing_keeps_the_rows(static):
    model = static.draft
    cache = model.engine.new_cache(4)
    ids = np.arange(700) % 500
    with torch.inference_mode():
        for first in range(0, 700, 50):
            seen = Visibility.causal(first, 50)
            logits = tree_forward(model, cache, ids[first : first + 50], np.arange(first, first + 50), seen, keep=1)
        whole = tree_forward(model, model.engine.new_cache(4), ids, np.arange(700), Visibility.causal(0, 700), keep=1)
    assert cache.length == 700 <= cache.capacity
    torch.testing.assert_close(logits, whole, rtol=0, atol=1e-5)


def test_rollback_and_compaction(static):
    model = static.draft
    ids = np.arange(20) * 17
    cache = model.engine.new_cache(64)
    with torch.inference_mode():
        tree_forward(model, cache, ids, np.arange(20), Visibility.causal(0, 20))
        assert cache.compact(4, [6, 7, 11]) == 3 * cache.bytes_per_slot
        held = [keys.clone() for keys, _ in cache.rows()]
        fresh = model.engine.new_cache(64)
        tree_forward(model, fresh, ids, np.arange(20), Visibility.causal(0, 20))
    expected = fresh.rows()[0][0][:, :, [0, 1, 2, 3, 6, 7, 11]]
    assert cache.length == 7 and torch.equal(held[0], expected)
    copy = cache.clone()
    cache.rollback(2)
    assert copy.length == 7 and torch.equal(copy.rows()[0][0], expected)
    assert cache.fresh(8).length == 0


@pytest.mark.slow
def test_logits_stay_as_they_are_when_more_passes_run(static):
    model = static.draft
    model.engine.graphs = TapeGraphs(model.device)
    kept = []
    for _ in range(3):
        cache = model.engine.new_cache(64)
        with torch.inference_mode():
            for length in range(6):
                one = np.array([length * 5])
                kept.append(tree_forward(model, cache, one, np.array([length]), Visibility.causal(length, 1)))
        del cache
    assert model.engine.graphs.captured == 1
    assert torch.stack(kept).isfinite().all()
    assert all(torch.equal(a, b) for a, b in zip(kept[:6], kept[12:], strict=True))
    assert not torch.equal(kept[0], kept[1])


@pytest.mark.slow
def test_graphs_of_grown_blocks_go_with_the_old_ones(static):
    model = static.draft
    graphs = model.engine.graphs = TapeGraphs(model.device)
    cache = model.engine.new_cache(64)
    with torch.inference_mode():
        for length in range(4):
            tree_forward(model, cache, np.array([3]), np.array([length]), Visibility.causal(length, 1))
        old = weakref.ref(cache.blocks)
        assert len(graphs._graphs) == 1
        cache.reserve(5000)
        assert old() is None and len(graphs._graphs) == 0
        for length in range(4, 8):
            row = tree_forward(model, cache, np.array([3]), np.array([length]), Visibility.causal(length, 1))
    fresh = model.engine.new_cache(64)
    with torch.inference_mode():
        whole = tree_forward(model, fresh, np.full(8, 3), np.arange(8), Visibility.causal(0, 8), keep=1)
    torch.testing.assert_close(row, whole, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_everything_goes_with_the_pair():
    pair = embedded_pair().with_engine("cuda_graph")
    session = DecodeSession(pair, METHODS["dynatree"], pair.vocabulary.encode(PROMPT), limits=Limits(max_new_tokens=12))
    list(session)
    other = DecodeSession(pair, METHODS["dynatree"], pair.vocabulary.encode(PROMPT), limits=Limits(max_new_tokens=12))
    other.step()
    del other
    held = [weakref.ref(thing) for model in (pair.target, pair.draft) for thing in _parts(model.engine)]
    assert len(held) > 8
    release(pair)
    gc.collect()
    assert session.tokens and [ref() for ref in held if ref() is not None] == []


def _parts(engine):
    return [engine, engine.graphs, engine.forward_pass, engine._pool, *engine._pool._idle, *engine._inputs.values()]


def test_auto_means_static_on_cuda_for_models_with_one_mask(embedded_network):
    def fastest(device="cuda", mask_kind="bool", layer_types=None):
        how = {"mask_kind": mask_kind, "mask_layer_types": layer_types}
        return choose._fastest(embedded_network, None, torch.device(device), torch.float32, **how)[0]

    assert fastest() == "cuda_graph" and fastest("cpu") == "packed" and fastest("mps") == "transformers"
    assert fastest(mask_kind="additive") == fastest(layer_types=("full_attention",)) == "transformers"
    embedded_network.hf_device_map = {"a": 0, "b": "cpu"}
    try:
        assert fastest() == "transformers"
        with pytest.raises(PairError, match="it is spread over devices: the cuda_graph engine needs one"):
            choose.make_engine("cuda_graph", embedded_network, "it", 64, **cpu())
    finally:
        del embedded_network.hf_device_map


def cpu():
    how = {"num_layers": 8, "device": torch.device("cpu"), "dtype": torch.float32, "mask_kind": "bool"}
    return how | {"mask_layer_types": None}


@pytest.mark.slow
def test_a_static_engine_that_fails_or_differs_is_refused(embedded_network, monkeypatch):
    def cannot_run(*_args):
        raise RuntimeError("no kernel for these shapes\nmore")

    run = CudaGraphEngine.run

    def cannot_be_captured(engine, *args):
        engine.graphs.failure = "operation not permitted when stream is capturing"  # it ran, uncaptured
        return run(engine, *args)

    for broken, words in (
        (cannot_run, "it cannot run with static shapes (no kernel for these shapes); choose engine transformers."),
        (cannot_be_captured, "it cannot run as CUDA graphs (operation not permitted when stream is capturing); choose"),
    ):
        with monkeypatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            patch.setattr(CudaGraphEngine, "run", broken)
            with pytest.raises(PairError) as reported:
                choose.make_engine("cuda_graph", embedded_network, "it", 64, **cpu())
            assert words in str(reported.value)
            patch.setattr(choose, "_fastest", lambda *args, **how: ("cuda_graph", "the fastest"))
            made = choose.make_engine("auto", embedded_network, "it", 64, **cpu())
            assert made.engine.name == "transformers" and words in made.reason("auto")
    monkeypatch.setattr(CudaGraphEngine, "run", lambda *args: 1.01 * run(*args))
    with pytest.raises(PairError, match="With the cuda_graph engine, log-probabilities of likely tokens of it are"):
        choose.make_engine("cuda_graph", embedded_network, "it", 64, **cpu())


@pytest.fixture(scope="module")
def embedded_network(embedded):
    return embedded.target.network


@pytest.mark.slow
def test_nan_in_the_second_pass_alone_is_a_difference(static, monkeypatch):
    """On a GPU the second pass is the first that a graph gives."""
    target, engine = static.target, static.target.engine
    run, calls = engine.run, []

    def spoilt(*args):
        calls.append(args)
        return run(*args) * (torch.nan if len(calls) > 2 else 1)  # two passes for one look

    monkeypatch.setattr(engine, "run", spoilt)
    library = target.with_engine("transformers").engine
    difference, refusal = choose._checked(engine, library, target.network, "it", target.dtype)
    assert difference is None and "are off by inf" in refusal and len(calls) == 4
