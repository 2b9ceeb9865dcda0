"""Where two runs part: output, settings, trees, totals; the command's exit codes and sentences."""

import re
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from decoding.diff import (
    compare_iterations,
    compare_runs,
    diff_lines,
    difference_words,
    main,
    parting_words,
    tree_words,
)
from decoding.trace.run_file import save_run
from tests.helpers.traces import (
    Spec,
    bonus,
    dynatree_recovered,
    fallback,
    iteration_of,
    run_autoregressive,
    run_mixed,
    run_of,
    run_replayed,
    summary,
)


def short():
    """A run that goes another way in its third iteration."""
    return run_of([dynatree_recovered(), dynatree_recovered(), fallback()])


def texts(iteration, nodes) -> list[str]:
    return [iteration.nodes[node].text for node in nodes]


def longer():
    return run_of([dynatree_recovered(), dynatree_recovered(), bonus(), fallback()])


def test_a_run_is_the_same_as_itself():
    diff = compare_runs(run_mixed(), run_mixed())
    assert diff.parting is None
    assert diff.differences == diff.trees == ()
    assert diff.compared == len(run_mixed().iterations)
    assert all(total.first == total.second for total in diff.totals)


def test_the_first_token_that_differs():
    diff = compare_runs(short(), longer())
    part = diff.parting
    assert part.position == diff.same_tokens == 6
    assert (part.first.text, part.first.iteration, part.first.provenance) == ("\n\n", 2, "fallback")
    assert (part.second.text, part.second.iteration, part.second.provenance) == (" a", 2, "drafted")
    assert "agree for 6 tokens" in parting_words(diff)
    assert "'\\n\\n' (iteration 3, fallback)" in parting_words(diff)


def test_a_run_that_ends_earlier():
    whole = longer()
    part = compare_runs(run_of(whole.iterations[:2]), whole).parting
    assert part.position == 6
    assert part.first is None
    assert part.second.text == " a"


def test_trees_are_compared_only_behind_the_same_text():
    diff = compare_runs(short(), longer())
    assert diff.compared == 3
    assert [tree.first.index for tree in diff.trees] == [2]
    tree = diff.trees[0]
    assert texts(tree.first, tree.only_first) == ["<b>x</b>", "<0xE2>", "  \t"]
    assert texts(tree.second, tree.only_second) == [" a", " the", " big"]
    reported = "\n".join(tree_words(diff))
    assert r"3 nodes only in A: '<b>x</b>', '<0xE2>', '<b>x</b>  \t'" in reported
    assert "3 nodes only in B: ' a', ' the', ' a big'" in reported
    assert not tree.committed


def test_another_verdict_on_the_same_node():
    first = dynatree_recovered()
    changed = replace(first.nodes[8], verdict="not_reached")
    second = replace(first, nodes=(*first.nodes[:8], changed, *first.nodes[9:]))
    tree = compare_iterations(first, second)
    assert tree.only_first == tree.only_second == ()
    assert tree.verdicts == ((8, 8),)
    assert "rejected | not reached" in "\n".join(tree_words(compare_runs(run_of([first]), run_of([second]))))
    assert not tree.empty


def test_only_what_is_shown_is_put_into_words():
    """A file may hold a chain so long that the texts of all of its paths fit into no memory."""
    chain = [Spec(node, f" {'ab' * 2000}{node}", 0.9, 0.9, "not_reached") for node in range(250)]
    deep = iteration_of(chain, final=(0, " b", 0.5), final_kind="fallback")
    tracemalloc.start()
    lines = diff_lines(compare_runs(run_of([fallback()]), run_of([deep])))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    reported = next(line for line in lines if "250 nodes only in B" in line)
    assert reported.endswith(" and 244 more") and len(reported) < 600
    assert peak < 5 * 2**20


def test_what_was_asked_differently():
    first = run_mixed()
    second = replace(
        first,
        method="linear",
        settings={**first.settings, "base_depth": 9, "length": 4},
        sampling=replace(first.sampling, temperature=0.5),
        pair=replace(first.pair, draft=replace(first.pair.draft, dtype="float16")),
        hardware={**first.hardware, "gpu": "one"},
    )
    reported = {(each.group, each.name): (each.first, each.second) for each in compare_runs(first, second).differences}
    assert reported == {
        ("draft model", "dtype"): ("float32", "float16"),
        ("method", "name"): ("dynatree", "linear"),
        ("settings", "base_depth"): (first.settings["base_depth"], 9),
        ("settings", "length"): (None, 4),
        ("sampling", "temperature"): (0.0, 0.5),
        ("hardware", "gpu"): (None, "one"),
    }
    words = difference_words(compare_runs(first, second))
    assert "settings only in B: length 4" in words
    assert "hardware, gpu: none | one" in words


def test_a_replayed_iteration_leaves_no_measured_totals():
    reported = {total.words: total for total in compare_runs(run_replayed(), run_of([dynatree_recovered(0)])).totals}
    for words in ("wall time, measured", "time to first token, measured", "tokens per second, measured"):
        assert reported[words].first is None and reported[words].second > 0
    assert reported["new tokens"].first == 9


def test_totals_are_said_with_their_units():
    (line,) = [line for line in diff_lines(compare_runs(short(), longer())) if "accepted of drafted" in line]
    assert line.count(" %") == 2
    (line,) = [line for line in diff_lines(compare_runs(short(), longer())) if "target passes" in line]
    assert re.search(r"\d\b(?! %| s| MiB)", line) and not re.search(r"\d (s|%|MiB)\b", line)


def test_another_prompt_compares_no_trees():
    first = run_mixed()
    second = replace(first, prompt_ids=(5, *first.prompt_ids[1:]))
    diff = compare_runs(first, second)
    assert diff.compared == 0
    assert diff.differences[0].group == "prompt"
    assert "no two recorded trees" in tree_words(diff)[0]


@pytest.mark.parametrize("build", [lambda: run_of([]), run_autoregressive, lambda: run_of([summary(0)])])
def test_runs_without_trees_or_iterations(build):
    lines = diff_lines(compare_runs(build(), longer()))
    assert any(line.strip().startswith("new tokens") for line in lines)


def test_everything_stays_on_its_line():
    first = dynatree_recovered()
    odd = replace(first.nodes[1], text="a\nb\u2028\x1b[31m", token_id=99)
    second = replace(first, nodes=(first.nodes[0], odd, *first.nodes[2:]))
    diff = compare_runs(run_of([first]), replace(run_of([second]), settings={"a\n": "b\n\x1b[2J"}))
    for line in diff_lines(diff, every=True):
        assert line.isprintable(), line


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture):
    places = {name: str(tmp_path / name) for name in ("a", "b", "damaged", "nowhere")}
    save_run(short(), places["a"])
    save_run(longer(), places["b"])
    Path(places["damaged"]).write_bytes(Path(places["a"]).read_bytes()[:200])
    assert main([places["a"], places["a"]]) == 0
    assert "Both runs wrote the same" in capsys.readouterr().out
    assert main([places["a"], places["b"]]) == 1
    assert "agree for 6 tokens" in capsys.readouterr().out
    for wrong in ("damaged", "nowhere"):
        assert main([places["a"], places[wrong]]) == 2
        reported = capsys.readouterr()
        assert reported.out == ""
        assert reported.err.startswith("error: ")
        assert reported.err.count("\n") == 1
