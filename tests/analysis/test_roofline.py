"""Modelled passes by hand, where speculation stops paying on built cases, acceptance, the sentence and the command."""

import json
from dataclasses import replace

import pytest

from decoding.analysis.batch import (
    FEWEST_TESTS,
    Rates,
    chain_by_batch,
    crossings,
    engine_acceptance,
    even_acceptance,
    run_acceptance,
    speed_by_batch,
    typed_acceptance,
)
from decoding.analysis.known_models import KNOWN_MODELS, known_shape
from decoding.analysis.model_shape import eagle_head, read_shape
from decoding.analysis.roofline import (
    ACCELERATORS,
    BATCHES,
    MOST_BATCH,
    MOST_CONTEXT,
    Accelerator,
    Efficiency,
    Setup,
    most_sequences,
    needed_bytes,
    pass_time,
    roofline_costs,
)
from decoding.analysis.when_it_pays import answer, compute_bound_from, measured_answer, verdict
from decoding.common.cost_model import CostCurve, CostModel, CostPoint
from decoding.common.errors import SettingsError
from decoding.recorded import recorded_run
from decoding.roofline import main
from decoding.trace.engine_metrics import read_metrics
from tests.helpers.traces import bonus, ended, fallback, pruned, run_autoregressive, run_of

SMALL = read_shape(
    json.dumps({
        "model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 10,
    }).encode(),
    "small",
)  # fmt: skip
BARE = Efficiency(1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
BODY, HEAD = 2 * (208 + 288) + 8, 80  # parameters: see test_model_shape
SLOW_SUMS = Accelerator("slow sums", 1e9, 1e6, None, 1e9, "a test")
SLOW_MEMORY = Accelerator("slow memory", 1e3, 1e12, None, 1e9, "a test")


def test_a_pass_by_hand_where_memory_is_slow():
    passed = pass_time(SMALL, Setup(SLOW_MEMORY, context=5, efficiency=BARE), batch=3, rows=2)
    weights, attention, head = passed.parts
    assert weights.bytes == 2 * BODY and weights.operations == 2 * 6 * BODY and weights.limit == "bandwidth"
    # 3 sequences x 2 layers x (7 rows seen + 2 written) x 8 numbers x 2 bytes
    assert attention.bytes == 3 * 2 * (7 + 2) * 8 * 2
    assert attention.operations == 6 * 2 * 7 * 32
    assert head.bytes == 2 * HEAD and head.operations == 2 * 6 * HEAD
    assert passed.seconds == pytest.approx((2 * BODY + 864 + 2 * HEAD) / 1e3)
    assert passed.limit == "bandwidth (weights)" and passed.fixed_s == 0


def test_a_pass_by_hand_where_operations_are_slow():
    passed = pass_time(SMALL, Setup(SLOW_SUMS, context=5, efficiency=BARE), batch=3, rows=2)
    assert passed.seconds == pytest.approx((12 * BODY + 2688 + 12 * HEAD) / 1e6)
    assert passed.limit == "compute (weights)"


def test_fixed_costs_shares_and_devices():
    of = Efficiency(0.5, 0.25, 1e-3, 2e-3, 4e-3, 0.0, 0.0)
    one = pass_time(SMALL, Setup(SLOW_MEMORY, context=5, efficiency=of), 3, 2)
    assert one.fixed_s == pytest.approx(2 * 1e-3 + 2e-3)
    assert one.parts[0].bytes_s == pytest.approx(2 * BODY / 1e3 / 0.5)
    assert one.parts[0].operations_s == pytest.approx(12 * BODY / 1e12 / 0.25)
    four = pass_time(SMALL, Setup(SLOW_MEMORY, 4, context=5, efficiency=of), 3, 2)
    assert four.fixed_s == pytest.approx(one.fixed_s + 2 * 2 * 4e-3)
    assert four.parts[0].bytes == one.parts[0].bytes / 4
    assert four.parts[1].bytes == one.parts[1].bytes / 2  # two key/value heads for four devices


def test_formats_scale_bytes_and_eight_bits_operations():
    target, chip = known_shape("Llama-3.1-8B"), ACCELERATORS["h100-sxm"]
    parts = {
        name: pass_time(target, Setup(chip, weights=name, cache="fp8"), 1, 1).parts for name in ("bf16", "fp8", "int4")
    }
    body = target.body(0) + target.other
    assert parts["bf16"][0].bytes == 2 * body and parts["fp8"][0].bytes == body
    assert parts["int4"][0].bytes == pytest.approx(body * (4 + 20 / 128) / 8)
    assert parts["fp8"][2].bytes == 2 * target.head  # the output head stays in 16 bits
    assert parts["fp8"][0].operations_s == pytest.approx(parts["bf16"][0].operations_s * 989 / 1979)
    assert parts["int4"][0].operations_s == parts["bf16"][0].operations_s
    without = Setup(ACCELERATORS["a100-80gb"], weights="fp8")
    assert pass_time(target, without, 1, 1).parts[0].operations_s == pass_time(
        target, replace(without, weights="bf16"), 1, 1
    ).parts[0].operations_s  # fmt: skip


def test_layers_with_a_window_see_no_further():
    target, chip = known_shape("gpt-oss-20b"), ACCELERATORS["h200"]
    attention = pass_time(target, Setup(chip, context=999), 1, 1).parts[1]
    assert attention.bytes == 2 * target.kv_values * (12 * 1000 + 12 * 128 + 24)


def test_verifying_more_tokens_reads_more_experts():
    sparse, setup = known_shape("Qwen3-30B-A3B"), Setup(ACCELERATORS["h100-sxm"])
    read = [pass_time(sparse, setup, 1, rows).parts[0].bytes for rows in (1, 4, 10_000)]
    expected = sparse.body(128 * (1 - (1 - 8 / 128) ** 4)) + sparse.other
    assert read[1] == pytest.approx(2 * expected) and read[0] < read[1] < read[2]
    assert read[2] == pytest.approx(2 * (sparse.body(128) + sparse.other), rel=1e-6)
    dense = known_shape("Llama-3.1-8B")
    assert pass_time(dense, setup, 1, 1).parts[0].bytes == pass_time(dense, setup, 1, 64).parts[0].bytes


def test_costs_say_that_they_are_modelled_and_of_what():
    target = known_shape("Llama-3.1-8B")
    setup = Setup(ACCELERATORS["h200"], context=300, efficiency=Efficiency(draft_s=1e-3, sequence_s=1e-4))
    costs = roofline_costs(target, eagle_head(target), setup, 8)
    assert costs.machine.startswith("modelled: H200") and costs.batch == 8 and costs.prefix_length == 300
    assert float(costs.verification.seconds(1)) == pytest.approx(pass_time(target, setup, 8, 1).seconds)
    assert float(costs.verification.seconds(5)) == pytest.approx(pass_time(target, setup, 8, 5).seconds + 1.8e-3)
    assert float(costs.level.seconds(3)) == pytest.approx(pass_time(eagle_head(target), setup, 8, 3).seconds)
    assert float(roofline_costs(target, None, setup, 8).level.seconds(9)) == 0
    assert type(costs).from_json(costs.as_json()) == costs


def test_it_breaks_even_where_operations_double():
    """Lookup that accepts one token of two: 1.5 tokens a pass. Compute-bound, a pass of two tokens takes twice as
    long, so that it loses there, and wins below.
    """
    chip = Accelerator("half and half", 1e6, 16e6, None, 1e12, "a test")  # weights: compute-bound from 16 tokens
    setup = Setup(chip, context=0, efficiency=BARE)
    assert compute_bound_from(SMALL, setup) == 17  # at 16 both take the same
    found = answer(SMALL, None, setup, Rates((0.5, 0.0)), (1, 4, 8, 16, 64, 1024))
    gains = {row.point.batch: row.point.chain.speedup for row in found.rows}
    assert gains[1] == pytest.approx(1.5, rel=0.05) and gains[1024] == pytest.approx(0.75, rel=0.05)
    points = tuple(row.point for row in found.rows)
    assert found.chain_ends == crossings(points, "chain")
    assert 8 < found.chain_ends[0] < 64
    assert found.sentence.startswith(f"Modelled: speculate up to a batch of about {int(found.chain_ends[0])}. At ")
    assert "compute-bound from about 17 tokens" in found.sentence


def test_measured_passes_answer_in_the_same_words():
    def costs(batch: int, verify: float, level: float) -> CostModel:
        target, draft = (CostCurve(tuple(CostPoint(n, s, s, s) for n, s in ((1, first), (2, second))))
                         for first, second in ((1.0, verify), (level, level)))  # fmt: skip
        return CostModel(target, draft, 0.0, 0.0, 1, 1, "", "", batch=batch)

    found = measured_answer({1: costs(1, 1.0, 0.25), 4: costs(4, 1.75, 0.25)}, Rates((0.5,)))
    assert [row.point.chain.speedup for row in found.rows] == pytest.approx([1.5 / 1.25, 0.75])
    assert found.rows[1].round_s == pytest.approx(2.0) and found.source == "modelled from measured passes"
    assert found.sentence == (
        f"Modelled from measured passes: speculate up to a batch of about {int(found.chain_ends[0])}. At 4 verifying 2 "
        "tokens a sequence adds 75% to a plain iteration for 0.50 more tokens."
    )
    dear = measured_answer({1: costs(1, 1.25, 0.5)}, Rates((0.5,)))
    assert dear.sentence.endswith("At 1 drafting takes 50% of a plain iteration for 0.50 more tokens.")


@pytest.mark.parametrize("measured", [False, True])
def test_the_round_is_that_of_the_chain_whose_gain_stands_beside_it(measured):
    target, setup, rates = known_shape("Llama-3.1-8B"), Setup(ACCELERATORS["h100-sxm"]), Rates((0.6,), (0.6, 0.3))
    head = eagle_head(target, None)
    found = answer(target, head, setup, rates, (1, 8))
    if measured:
        found = measured_answer({batch: roofline_costs(target, head, setup, batch) for batch in (1, 8)}, rates)
    assert any(row.point.tree.speedup > row.point.chain.speedup for row in found.rows)
    for row in found.rows:
        chain = row.point.chain
        assert chain.shape.tokens * row.plain_s / row.round_s == pytest.approx(chain.speedup)


def test_the_sentence_fits_the_case():
    target, setup = known_shape("Llama-3.1-8B"), Setup(ACCELERATORS["h100-sxm"], 16, context=16_384)
    head = eagle_head(target)
    always = answer(target, head, setup, Rates((0.8,)))
    assert always.chain_ends == () and "at every batch up to 256" in always.sentence
    assert "bandwidth (attention)" in always.sentence
    never = answer(target, known_shape("Qwen3-8B"), setup, Rates((0.5,)))
    assert "do not speculate, at no batch from 1 to 136" in never.sentence  # beyond, two caches have no room
    assert "of a plain pass to make" in never.sentence
    slow = replace(setup, efficiency=Efficiency(draft_s=0.02))
    assert "the engine's own work in a round" in answer(target, None, slow, Rates((0.3,))).sentence
    sparse = known_shape("Qwen3-30B-A3B")
    dip = answer(sparse, eagle_head(sparse, 32_000), Setup(ACCELERATORS["h100-sxm"]), Rates((0.55, 0.4)))
    assert "speculate at batches of about" in dip.sentence and "16 of 128 experts a layer, not to 8" in dip.sentence
    assert len(dip.chain_ends) == 1 and dip.rows[0].point.chain.speedup < 1 < dip.rows[-1].point.chain.speedup


def test_crossings_go_both_ways():
    target = known_shape("Llama-3.1-8B")
    points = speed_by_batch({b: roofline_costs(target, None, Setup(ACCELERATORS["h200"]), b) for b in (1, 2, 4, 8)},
                            Rates((0.5,)))  # fmt: skip
    made = [replace(p, chain=replace(p.chain, speedup=gain)) for p, gain in zip(points, (0.5, 2, 2, 0.5), strict=True)]
    assert crossings(tuple(made), "chain") == (pytest.approx(2**0.5), pytest.approx(4 * 2**0.5))
    assert crossings(tuple(made), "tree") == ()


def test_a_stretch_begins_with_the_first_batch_that_pays_and_ends_with_the_last():
    target = known_shape("Llama-3.1-8B")
    points = speed_by_batch({b: roofline_costs(target, None, Setup(ACCELERATORS["h200"]), b) for b in (2, 4, 16, 64)},
                            Rates((0.5,)))  # fmt: skip

    def said(*gains: float) -> str:
        made = (replace(p, chain=replace(p.chain, speedup=gain)) for p, gain in zip(points, gains, strict=True))
        return verdict(tuple(made), lambda point: "it costs")

    # Between 2 and 4 it crosses at 2.83, between 16 and 64 at 32; between 4 and 16 at 6.84.
    assert said(0.5, 2, 2, 0.5) == "speculate at batches of about 3 to 32 only. At 2 it costs."
    assert said(2, 0.5, 3, 2) == "speculate at batches of about 2 to 2 and 7 to 64 only. At 4 it costs."
    assert said(2, 2, 2, 0.5) == "speculate up to a batch of about 32. At 64 it costs."
    assert said(0.5, 0.5, 0.5, 2) == "speculate at batches of about 33 to 64 only. At 2 it costs."


def test_the_longest_chain_looked_at_is_no_shorter_than_the_servers_own():
    target, setup = known_shape("Llama-3.1-8B"), Setup(ACCELERATORS["h100-sxm"])
    (usual,), (long,) = (answer(target, None, setup, Rates((0.97,), deepest=24), (8,), k).rows for k in (3, 24))
    assert len(usual.gains) == 16 and len(long.gains) == 24
    assert long.own.gain == pytest.approx(long.gains[23]) and long.point.chain.shape.depth == 24
    assert long.point.chain.speedup == pytest.approx(max(long.gains))


def test_rows_outside_a_window_take_no_room():
    gemma = known_shape("Gemma-2-9B")
    setup = Setup(ACCELERATORS["h100-sxm"], context=16_384)
    assert 0 < gemma.local_layers < gemma.layers and gemma.window == 4096
    one = needed_bytes(gemma, None, setup, 2) - needed_bytes(gemma, None, setup, 1)
    rows = (gemma.layers - gemma.local_layers) * 16_384 + gemma.local_layers * 4096
    assert one == 2 * gemma.kv_values * rows
    short = replace(setup, context=1000)
    assert needed_bytes(gemma, None, short, 2) - needed_bytes(gemma, None, short, 1) == 2 * gemma.kv_values * 42_000


def test_memory():
    target, setup = known_shape("Llama-3.1-8B"), Setup(ACCELERATORS["rtx-4090"], context=1000)
    assert needed_bytes(target, None, setup, 10) == 2 * target.parameters + 10 * 1000 * 131_072
    room = 24e9 - 2 * target.parameters
    assert most_sequences(target, None, setup) == int(room / (1000 * 131_072)) == 60
    assert most_sequences(target, None, replace(setup, devices=2)) > 200
    assert most_sequences(target, None, replace(setup, context=0)) == MOST_BATCH
    # 16 devices for 8 key/value heads: each holds one of them, so all caches are there twice.
    large, shared = known_shape("Llama-3.1-70B"), Setup(ACCELERATORS["h100-sxm"], devices=16, context=8192)
    row, room = 2 * 2 * large.layers * large.kv_heads * large.head_dim, 16 * 80e9 - 2 * large.parameters
    assert most_sequences(large, None, shared) == int(room / (2 * 8192 * row)) == 212
    # A first EAGLE head has no embedding and no output head of its own.
    head = eagle_head(target)
    own = head.attention + head.mlp + head.other
    assert needed_bytes(target, head, setup, 1) - needed_bytes(target, None, setup, 1) == 2 * own + 1000 * 4096
    far = replace(setup, context=MOST_CONTEXT)
    with pytest.raises(SettingsError, match="take smaller weights, a smaller cache or a shorter context"):
        most_sequences(known_shape("DeepSeek-V3"), None, far)
    with pytest.raises(SettingsError, match=r"take 141 GB, and 1 x RTX 4090 has 24; set tensor parallel to 6 or more"):
        most_sequences(known_shape("Llama-3.1-70B"), None, setup)


def test_batches_without_room_are_in_no_part_of_the_answer():
    target, setup = known_shape("Llama-3.1-8B"), Setup(ACCELERATORS["rtx-4090"], context=1000)
    found = answer(target, None, setup, Rates((0.9,)))
    assert found.most == 60 and found.rows[-1].point.batch == 60
    assert "at every batch up to 60" in found.sentence and "room for 60 sequences of 1,000 tokens" in found.sentence
    assert chain_by_batch([row.point for row in found.rows])[-1][1] == 60
    with pytest.raises(SettingsError, match="room for 60 sequences"):
        answer(target, None, setup, Rates((0.9,)), (64, 128))
    assert answer(target, None, setup, Rates((0.9,)), (1, 8)).most is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"weights": "bf8"}, "Weights are 'bf8'"), ({"cache": "int3"}, "The cache is 'int3'"),
        ({"context": -1}, "The context must be"), ({"devices": 0}, r"Devices \(tensor parallel\) must be"),
    ],
)  # fmt: skip
def test_settings_out_of_range(change, said):
    with pytest.raises(SettingsError, match=said):
        Setup(ACCELERATORS["h200"], **change)
    for wrong in ({"bandwidth": 0.0}, {"operations": 1.5}, {"layer_s": -1.0}, {"draft_s": float("nan")}):
        with pytest.raises(SettingsError):
            Efficiency(**wrong)
    with pytest.raises(SettingsError):
        Accelerator("none", 0.0, 1e12, None, 1e9, "a test")


def test_accelerators_name_their_sheet():
    for chip in ACCELERATORS.values():
        assert chip.source and 0.5e12 < chip.bytes_per_s < 1e13
        assert chip.fp8 is None or chip.fp8 == pytest.approx(2 * chip.bf16, rel=0.02)  # dense both


def test_typed_and_even_acceptance():
    assert typed_acceptance("0.8, 0.7", "0.6 0.1") == Rates((0.8, 0.7), (0.6, 0.1))
    with pytest.raises(SettingsError, match="not 'much'"):
        typed_acceptance("much")
    (rate,) = even_acceptance(1.75, 2).by_depth
    assert 1 + rate + rate**2 == pytest.approx(1.75)
    assert even_acceptance(4, 3).by_depth == (1.0,)


def test_acceptance_of_an_engine():
    profile = {"marginal_accept_rates": [0.8, 0.6, 0.15], "num_speculative_tokens": 3}
    assert engine_acceptance(read_metrics(json.dumps(profile).encode())).by_depth == pytest.approx((0.8, 0.75, 0.25))
    dead = engine_acceptance(read_metrics(b"Per-position acceptance rate: 0.400, 0.150, 0.000, 0.000, 0.000"))
    assert dead.by_depth == pytest.approx((0.4, 0.375, 0)) and dead.deepest == 5, "nothing behind a 0 is unknown"
    sglang = {"meta_info": {"spec_verify_ct": 100, "spec_num_correct_drafts": 150, "spec_num_proposed_drafts": 300}}
    metrics = read_metrics(json.dumps(sglang).encode())
    if metrics.draft_length is None:
        with pytest.raises(SettingsError, match="tells neither"):
            engine_acceptance(metrics)
    else:
        (rate,) = engine_acceptance(metrics).by_depth
        assert sum(rate**d for d in range(metrics.draft_length + 1)) == pytest.approx(2.5)


def test_acceptance_of_a_run_by_hand():
    """A chain accepted to its leaf, nothing accepted of two children, a rejected child beside a pruned one; and one
    that the end of the text cut, which says nothing.
    """
    found = run_acceptance(run_of([make(n) for n, make in enumerate([bonus, fallback, pruned, ended] * FEWEST_TESTS)]))
    assert found.by_depth == (pytest.approx(2 / 3), 0.5)  # of 3 roots two, of 2 nodes at depth 1 one
    assert found.by_rank == (pytest.approx(3 / 5), 0.0)  # of 5 nodes three; of one with a second child, none
    few = run_acceptance(run_of([bonus(0), fallback(1)]))
    assert few == Rates((0.5,))
    chain = run_acceptance(recorded_run("tree_helps_chain"))
    assert chain.by_rank == () and 1 <= len(chain.by_depth) <= 3
    assert len(run_acceptance(recorded_run("tree_helps")).by_rank) > 1  # what Your engine opens with has trees


@pytest.mark.parametrize("name", ["lost_verify", "tree_helps_plain"])
def test_a_run_without_trees_has_none(name):
    with pytest.raises(SettingsError, match="drafted nothing, or its trees were not recorded"):
        run_acceptance(recorded_run(name))
    with pytest.raises(SettingsError):
        run_acceptance(run_autoregressive())


def test_the_command_says_on_every_line_that_it_is_modelled(capsys, tmp_path):
    file = tmp_path / "mine" / "config.json"
    file.parent.mkdir()
    file.write_text(KNOWN_MODELS["Qwen3-8B"].text)
    assert main(["--target", str(file), "--accelerator", "h200", "--acceptance", "0.7", "--ranks", "0.6,0.2"]) == 0
    said = capsys.readouterr().out
    lines = [line for line in said.splitlines() if line.startswith("modelled,")]
    assert [int(line.split()[1].rstrip(":")) for line in lines] == list(BATCHES)
    assert "is assumed to be 1" in said and "Beyond depth 1 the last of the rates given is taken to go on" in said
    assert "mine (8.19B)" in said and "Modelled: " in said and "the best tree pays" in said
    assert main(["--target", "Qwen3-30B-A3B", "--accelerator", "800,27,192", "--acceptance", "0.8,0.7"]) == 0
    assert "the best chain pays at any batch up to" in capsys.readouterr().out
    assert main(["--target", "Qwen3-8B", "--accelerator", "h200", "--acceptance", "0.4", "--engine-ms", "2"]) == 0
    assert "the best chain breaks even at a batch of about" in capsys.readouterr().out
    assert main(["--target", "Qwen3-30B-A3B", "--accelerator", "800,27,192", "--acceptance", "0"]) == 0
    assert "the best chain does not pay at any batch" in capsys.readouterr().out
    assert main(["--target", "Llama-3.1-8B", "--draft", "none", "--accelerator", "800,27,192", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert (
        written["draft"] is None
        and written["setup"]["accelerator"]["bytes_per_s"] == 800e9
        and len(written["rows"]) == 9
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--target", "nowhere.json"], "nowhere.json cannot be read"),
        (["--target", "Llama-3.1-8B", "--accelerator", "abacus"], "The accelerator is 'abacus'"),
        (["--target", "Llama-3.1-8B", "--accelerator", "0,1,1"], "must be above 0"),
        (["--target", "Llama-3.1-8B", "--acceptance", "2"], "Acceptance rates must be from 0 to 1"),
        (["--target", "Llama-3.1-8B", "--acceptance", ""], "Acceptance rates must be from 0 to 1"),
        (["--target", "Llama-3.1-8B", "--bandwidth-share", "7"], "Shares of bandwidth"),
    ],
)
def test_the_command_refuses_in_a_sentence(words, said, capsys):
    words = words if "--accelerator" in words else [*words, "--accelerator", "h200"]
    assert main(words) == 2
    written = capsys.readouterr()
    assert (
        not written.out and said in written.err and written.err.startswith("error: ") and written.err.count("\n") == 1
    )
