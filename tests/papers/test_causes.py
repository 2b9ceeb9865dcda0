"""Why a claim does not hold, from rows and records made by hand."""

import pandas as pd

from decoding.experiments.rows import LOOP_FREE
from decoding.papers.judge import JudgedClaim, grid_name, judge
from tests.helpers.papers import BY_KEY, DYNATREE, PROMPTS, frame, of_shape, row, rows, store


def claim(key: str, better: str, worse: str, made: pd.DataFrame | None = None) -> JudgedClaim:
    """The first of a paper result's claims on two entries, judged on rows, else on what is stored."""
    judged = judge(BY_KEY[key], frame() if made is None else made).judged
    return next(each for each in judged if (each.ordering.better, each.ordering.worse) == (better, worse))


def test_a_late_first_token_is_explained_by_who_reads_the_prompt():
    made = rows({"autoregressive": 100.0, "dynatree": 180.0})
    drafts = made["line"] == "dynatree"
    for prefix in ("", LOOP_FREE):
        made.loc[drafts, [f"{prefix}ttft_s", f"{prefix}prefill_s"]] = 0.012, 0.010
        made.loc[~drafts, [f"{prefix}ttft_s", f"{prefix}prefill_s"]] = 0.009, 0.008
    assert claim("dynatree/table-2", DYNATREE, "Autoregressive", made).reason == (
        "TTFT, ms: 12.00 for DynaTree, 9.00 for Autoregressive. DynaTree reads the prompt with both models in 10.0 ms "
        "and takes 2.0 ms after it; Autoregressive reads the prompt with the target alone in 8.0 ms and takes 1.0 ms "
        "after it."
    )


def test_equal_memory_is_explained_by_the_nodes_of_a_pass():
    lines = {way.words: way.line for way in BY_KEY["pruned/table-7"].ways}
    chain, tree = "Linear, K = 6", "DynaTree, D = 6, B = 2"
    made = [row(lines[words], f"p{n}", 100.0, experiment=grid_name("dynatree_pruned"), cut=800, verified=nodes * 25,
                peak_memory_bytes=9e7) for words, nodes in ((chain, 6), (tree, 9)) for n in range(3)]  # fmt: skip
    found = claim("pruned/table-7", chain, tree, frame(*made))
    assert found.verdict == "equal within 3%"
    assert found.reason.endswith(f"they differ in the nodes of a pass, 6.0 of {chain} and 9.0 of {tree}.")


def test_parts_of_an_iteration_are_reported_with_its_nodes_and_forwards():
    seconds = {f"{phase}_s": 0.0 for phase in ("mask", "verify", "select", "commit", "rebuild", "adapt", "prune")}
    seconds |= {"draft_s": 0.5, "draft_passes_s": 0.1, "drafted": 1600, "draft_forwards": 75}
    made = [row("dyspec", f"p{n}", 100.0, experiment=grid_name("dyspec_64"), label="DySpec", temperature=0.6,
                **seconds) for n in range(3)]  # fmt: skip
    found = claim("dyspec/figure-4", "Passes of the draft", "Tree construction", frame(*made))
    assert found.verdict == "does not hold"
    assert found.reason.endswith(
        "An iteration drafts 64.0 nodes in 3.0 draft forwards: 4.00 ms of passes of the draft, 16.00 ms of tree "
        "construction."
    )


def test_drafting_is_explained_by_forwards_and_nodes_and_an_open_claim_by_who_agrees(results):
    made = [{"line": line, "sample": p, "nodes": 64, "draft_ms": ms * (1 + (p == "a")), "forwards": forwards,
             "drafted": 60} for p in PROMPTS for line, ms, forwards in
            (("threshold", 12.0 if p == "a" else 5.0, 4), ("greedy", 10.0, 10))]  # fmt: skip
    store(results, "tree_times", made)
    found = claim("dyspec/equation-3", "Threshold, measured", "Greedy, measured")
    assert found.verdict == "not decided" and ". 2 of 3 samples taken alone show the paper's order. " in found.reason
    assert found.reason.endswith("Greedy, measured drafts 60.0 nodes in 10.0 forwards of 1.33 ms with all that is "
                                 "between them.")  # fmt: skip


def test_orders_of_small_masks_leave_nothing_to_skip(results):
    tree = {"nodes": 64, "prefix": 0}
    counts = [{"part": "random", "line": line, "sample": f"random {n}", **tree, "blocks": 3, "blocks_128": 1}
              for line in ("as made", "breadth", "depth") for n in range(3)]  # fmt: skip
    calls = [{"part": "kernels", "line": line, "sample": f"repeat {n}", **tree, "kernel_ms": 2.0 + n}
             for line in ("as made", "breadth", "depth") for n in range(3)]  # fmt: skip
    store(results, "mask_order", [*counts, *calls])
    orders = "Depth-first (DFS)", "In creation order"
    assert claim("dyspec/table-5", *orders).reason.endswith(
        " Random trees of 64 nodes have 3.0 such blocks in every order."
    )
    assert claim("dyspec/table-5-times", *orders).reason.endswith(
        "Attention skips empty blocks of 128 x 128: random trees of 64 nodes have 1.0 others in every order."
    )


def test_a_calibration_error_stands_beside_that_against_the_targets_distribution(results):
    figures = {"talf": (0.5, 0.3, 0.01), "hass": (0.4, 0.2, 0.05), "eagle": (0.4, 0.2, 0.05)}
    store(results, "draft_ranks", [
        {"part": "behind", "line": line, "sample": p, "rank": 1, "accuracy": right, "ece": error + 0.001 * n,
         "distribution_ece": other} for line, (right, error, other) in figures.items() for n, p in enumerate(PROMPTS)
    ])  # fmt: skip
    found = claim("salf/appendix-a", "TALF", "HASS")
    assert found.verdict == "does not hold" and "(50.0% for TALF, 40.0% for HASS)" in found.reason
    assert found.reason.endswith("against the target's distribution the error is 1.0 points for TALF and 5.0 for HASS.")


def test_the_best_settings_are_named_and_at_how_many_samplings(results):
    tokens = {0.6: {2: 3.0, 4: 2.0}, 0.8: {2: 3.0, 4: 2.0}, 1.0: {2: 2.0, 4: 3.0}}
    store(results, "verifier_grid", [
        of_shape(verifier, p, paths, figure, temperature=temperature)
        for verifier in ("nss", "spectr") for p in PROMPTS for temperature, by_paths in tokens.items()
        for paths, figure in by_paths.items()
    ])  # fmt: skip
    assert judge(BY_KEY["delayed/table-2"], frame()).best["NSS", None] == "K = 2, L = 2 at 2 of 3 samplings"
    assert not judge(BY_KEY["pruned/table-4"], frame(*(row("autoregressive", p, 1.0, experiment="fixed trees")
                                                       for p in PROMPTS))).best  # fmt: skip
    by_sampling = judge(BY_KEY["delayed/table-11"], frame()).best
    assert by_sampling["SpecTr", "T = 0.6"] == "K = 2, L = 2" and by_sampling["SpecTr", "T = 1"] == "K = 4, L = 2"
