"""A run's method as an engine's configuration: names that the engine has, figures of the run, and sentences."""

import ast
import json
import re
import shlex
from dataclasses import asdict, replace
from itertools import pairwise

import pytest
import yaml

from decoding.common.errors import SettingsError
from decoding.export_config import config_lines, main
from decoding.recorded import recording_file
from decoding.trace.draft_figures import DraftFigures, draft_figures
from decoding.trace.engine_config import EngineConfig, engine_config, sglang_chain_command
from decoding.trace.engine_fields import ENGINE_SOURCES, ENGINES
from decoding.trace.engine_limits import DRAFT_PLACE, HEAD_PLACE, MeasuredChain
from decoding.trace.records import InterventionTrace, RunTrace
from tests.helpers.traces import dynatree_recovered, recorded, run_autoregressive, run_mixed, run_of, summary

# Keys below which the schema of the profile leaves the names open.
OPEN = {"draft_checkpoint", "target_model", "measurement_conditions", "accept_length_by_k",
        "acceptance_length_histogram"}  # fmt: skip


def with_head(name: str) -> RunTrace:
    run = recorded(name)
    return replace(run, settings={**run.settings, "draft_head": "eagle"})


def without_model() -> RunTrace:
    run = recorded("race_linear")
    return replace(run, iterations=tuple(replace(each, draft_forwards=0) for each in run.iterations))


def looked_up(drafter: str, **settings) -> RunTrace:
    run = without_model()
    iterations = tuple(replace(each, rule=replace(each.rule, drafter=drafter)) for each in run.iterations)
    return replace(run, iterations=iterations, settings={"verifier": "greedy", **settings})


def block_chain() -> RunTrace:
    run = recorded("race_linear")
    iterations = tuple(replace(each, draft_sampling="single_path") for each in run.iterations)
    sampling = replace(run.sampling, temperature=0.8)
    return replace(run, iterations=iterations, sampling=sampling, settings={**run.settings, "verifier": "block"})


def with_rule(drafter: str, **settings) -> RunTrace:
    run = recorded("race_linear")
    iterations = tuple(replace(each, rule=replace(each.rule, drafter=drafter)) for each in run.iterations)
    return replace(run, iterations=iterations, settings={**run.settings, **settings})


RUNS = {
    "chain": lambda: recorded("race_linear"),
    "tree": lambda: recorded("tree_helps"),
    "sampled tree": lambda: recorded("sampled"),
    "beam": lambda: recorded("lost_verify"),
    "tree without its nodes": lambda: recorded("lost_draft"),
    "head": lambda: with_head("race_linear"),
    "head, tree": lambda: with_head("tree_helps"),
    "no model": without_model,
    "block": block_chain,
    "head, block": lambda: replace(block_chain(), settings={**block_chain().settings, "draft_head": "eagle"}),
    "lookup or draft": lambda: with_rule("lookup_or_draft", shortest=2),
    "prompt lookup": lambda: looked_up("prompt_lookup", shortest=2, longest=4),
    "suffix": lambda: looked_up("suffix", max_depth=24, per_matched_token=1.5, least_share=0.1),
}


def keys_of(value) -> set[str]:
    """Keys of a JSON object and of the objects in it."""
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(keys_of(below) for name, below in value.items() if name not in OPEN))


def names_in(config: EngineConfig, engine: str) -> set[str]:
    """Every name and every chosen word that a text gives to the engine."""
    found: set[str] = set()
    for text in filter(None, (config.text, config.load_test)):
        if config.language == "sh":
            words = shlex.split(text)
            found |= {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)} - (
                {"-m"} if engine == "sglang" else set()
            )
            found |= {word.partition("=")[0] for word in words if re.match(r"[A-Z_]+=", word)}
            for flag, word in pairwise(words):
                if flag in ("--speculative-algorithm", "--spec-type", "--spec-draft-sampling"):
                    found |= set(word.split(","))
                if flag == "--speculative-config":
                    given = json.loads(word)
                    found |= set(given)
                    found |= {given[name] for name in given if name in ("method",) or name.endswith("_method")}
        elif config.language == "yaml":
            given = yaml.safe_load(text)
            found |= keys_of(given) | {given["speculative_config"]["decoding_type"]}
            found |= set(re.findall(r"--[a-z]+", text))
        elif config.language == "python":
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "GenerationConfig":
                    found |= {"GenerationConfig", *(each.arg for each in node.keywords)}
                if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "generate":
                    found |= {each.arg for each in node.keywords if each.arg}
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    found.add(node.attr)
        else:
            given = json.loads(text)
            found |= keys_of(given) | {given["verification_method"], given["accept_length_model"]}
            found |= {given["method"]} - {None}
    return found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", RUNS)
def test_no_name_is_written_that_was_not_read_in_the_engine(kind, engine):
    config, source = engine_config(RUNS[kind](), engine), ENGINE_SOURCES[engine]
    found = names_in(config, engine)
    assert found and {name for name in found if not source.knows(name)} == set()
    assert (config.engine, config.version, config.sources) == (source.label, source.version, tuple(source.names))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", config.read)
    for sentence in (*config.limits, *config.notes):
        assert sentence.endswith(".") and sentence.isprintable()
    for name in re.findall(r"(?<!\S)--[a-z-]+", " ".join(config.notes)):
        assert source.knows(name) or name in ("--draft-max", "--draft-min")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("run", [run_autoregressive(), recorded("race_autoregressive"), run_of([])])
def test_a_run_that_drafted_nothing_gives_one_sentence(engine, run):
    config = engine_config(run, engine)
    assert config.text == config.load_test == "" and config.notes == ()
    assert len(config.limits) == 1 and "nothing to export" in config.limits[0]


def vllm(text: str) -> dict:
    words = shlex.split(text)
    return json.loads(words[words.index("--speculative-config") + 1])


def test_a_chain_is_written_as_it_was_with_its_acceptance_by_depth():
    run = recorded("race_linear")
    config, figures = engine_config(run, "vllm"), draft_figures(run)
    assert config.limits == ()
    assert vllm(config.text) == {"method": "draft_model", "model": "embedded-draft", "num_speculative_tokens": 3}
    test = vllm(config.load_test)
    rates = test["synthetic_acceptance_rates"]
    assert len(rates) == 3 and rates == sorted(rates, reverse=True) and all(0 <= rate <= 1 for rate in rates)
    assert sum(rates) == pytest.approx(figures.mean_accepted, abs=1e-5)
    assert test["rejection_sample_method"] == "synthetic"
    sglang = engine_config(run, "sglang").text
    for line in ("--speculative-num-steps 3", "--speculative-eagle-topk 1", "--speculative-num-draft-tokens 4"):
        assert line in sglang
    assert yaml.safe_load(engine_config(run, "tensorrt-llm").text)["speculative_config"]["max_draft_len"] == 3
    assert "--spec-draft-n-max 3" in engine_config(run, "llama.cpp").text
    assert "num_assistant_tokens = 3" in engine_config(run, "transformers").text


def test_figures_by_hand():
    figures = DraftFigures((3, 0, 1, 1), 0, "model", (3, 3, 3, 3), (3, 3, 3, 3), 1, False)
    assert figures.rates(3) == [0.75, 0.25, 0.25] and figures.mean_accepted == 1.25
    assert figures.chains and figures.fixed and figures.chain_length == 3
    tree = replace(figures, sizes=(5, 5, 5, 5))
    assert not tree.chains and tree.chain_length == 2
    assert replace(figures, depths=(3, 2, 3, 3), sizes=(3, 2, 3, 3)).chain_length == 2
    assert replace(tree, accepted=(0, 0)).chain_length == 1


def test_iterations_that_were_cut_short_or_changed_are_not_counted():
    run = run_mixed()
    figures = draft_figures(run)
    end = len(run.prompt_ids) + run.max_new_tokens
    deepest = max(each.tree_depth for each in run.iterations)
    assert (
        len(figures.accepted)
        == sum(
            bool(each.drafted) and each.final_kind != "none" and end - each.prefix_length > deepest
            for each in run.iterations
        )
        < len(run.iterations)
    )
    changed = replace(run.iterations[0], interventions=(InterventionTrace("accept", (5,)),))
    fewer = draft_figures(replace(run, iterations=(changed, *run.iterations[1:])))
    assert len(fewer.accepted) == len(figures.accepted) - 1 and fewer.left_out == figures.left_out + 1
    assert draft_figures(replace(run, own_from=len(run.iterations))) is None
    short = draft_figures(run_of([dynatree_recovered()]))
    assert len(short.accepted) == 1 and short.left_out == 0, "where all were cut short, all that drafted count"


def test_a_tree_becomes_a_chain_where_an_engine_has_no_trees_and_says_so():
    run = recorded("tree_helps")
    figures = draft_figures(run)
    assert not figures.chains
    for engine in ("vllm", "tensorrt-llm", "llama.cpp", "transformers"):
        (limit,) = engine_config(run, engine).limits
        assert f"{figures.mean_accepted:.2f} accepted draft tokens per pass" in limit and "rounded up" in limit
        assert f"linear:length={figures.chain_length}" in limit and "not measured" in limit
    for engine, said in (("vllm", True), ("sglang", True), ("llama.cpp", True), ("tensorrt-llm", False)):
        assert any("The load test has" in note for note in engine_config(run, engine).notes) == said
        assert not any("The load test has" in note for note in engine_config(recorded("race_linear"), engine).notes)
    (limit,) = engine_config(run, "sglang").limits
    assert f"node_budget={max(figures.sizes)}" in limit
    assert f"--speculative-num-draft-tokens {max(figures.sizes) + 1}" in engine_config(run, "sglang").text


def test_a_beam_is_what_sglang_has():
    config = engine_config(recorded("lost_verify"), "sglang")
    assert config.limits == ()
    for line in ("--speculative-num-steps 7", "--speculative-eagle-topk 10", "--speculative-num-draft-tokens 61"):
        assert line in config.text


def test_trees_that_were_not_recorded_have_no_breadth():
    (limit,) = engine_config(recorded("lost_draft"), "sglang").limits
    assert "--record full" in limit
    assert "--speculative-eagle-topk 1" in engine_config(recorded("lost_draft"), "sglang").text
    assert draft_figures(run_of([summary(), summary()])).breadth is None


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
def test_a_draft_head_is_none_that_an_engine_loads(engine):
    config = engine_config(with_head("race_linear"), engine)
    assert HEAD_PLACE in config.text and HEAD_PLACE in config.limits[0] and "draft head eagle" in config.limits[0]


def test_a_draft_head_in_transformers_and_its_trees_in_tensorrt():
    assert "assistant_model" in engine_config(with_head("race_linear"), "transformers").limits[0]
    recorded = with_head("race_linear")  # as a session writes it: the head stands where the pair's draft model would
    named = replace(recorded, pair=replace(recorded.pair, draft=replace(recorded.pair.draft, name="TALF head")))
    written = engine_config(named, "transformers").text
    assert "TALF head" not in written and f'from_pretrained("{DRAFT_PLACE}")' in written
    given = yaml.safe_load(engine_config(with_head("tree_helps"), "tensorrt-llm").text)["speculative_config"]
    assert given["use_dynamic_tree"] is True
    most = given["dynamic_tree_max_topK"] * given["max_draft_len"]
    assert given["max_draft_len"] <= given["max_total_draft_tokens"] <= most


def test_sampling_is_carried_over_where_the_engine_has_it():
    given = vllm(engine_config(block_chain(), "vllm").text)
    assert given["draft_sample_method"] == "probabilistic" and given["rejection_sample_method"] == "block"
    assert engine_config(block_chain(), "vllm").limits == ()
    assert "verifier block" in engine_config(block_chain(), "llama.cpp").limits[0]
    assert "temperature=0.8" in engine_config(block_chain(), "transformers").text


def test_the_profile_adds_up():
    for kind in RUNS:
        profile = json.loads(engine_config(RUNS[kind](), "profile").text)
        marginal, conditional = profile["marginal_accept_rates"], profile["conditional_accept_rates"]
        assert len(marginal) == len(conditional) == profile["num_speculative_tokens"]
        product = 1.0
        for rate, given in zip(marginal, conditional, strict=True):
            product *= given
            assert product == pytest.approx(rate, abs=1e-4)
        histogram = profile["acceptance_length_histogram"]
        steps = sum(histogram.values())
        mean = sum(int(length) * count for length, count in histogram.items()) / steps
        assert profile["mean_accept_length"] == pytest.approx(mean, abs=1e-5)
        assert profile["validation"]["mean_consistency"]["passed"]
        assert profile["measurement_conditions"]["decode_steps"] == steps
    assert json.loads(engine_config(recorded("race_linear"), "profile").text)["accept_length_model"] == "chain_analytic"


def test_names_from_a_file_stay_on_their_line_and_in_their_quotes():
    run = recorded("race_linear")
    odd = "a'b\"$(x)\n\x1b[2J"
    pair = replace(run.pair, target=replace(run.pair.target, name=odd), draft=replace(run.pair.draft, name=odd))
    for engine in ENGINES:
        config = engine_config(replace(run, pair=pair, label=odd), engine)
        assert all(line.isprintable() for text in config_lines(config) for line in text.split("\n"))
        if config.language == "sh":
            assert any("$(x)" in word for word in shlex.split(config.text))
        elif config.language == "python":
            ast.parse(config.text)


def test_an_engine_that_is_not_there():
    with pytest.raises(SettingsError, match="choose vllm, sglang"):
        engine_config(run_mixed(), "vlllm")


def test_the_command(tmp_path, capsys):
    chain, plain = (str(recording_file("race", name)) for name in ("linear", "autoregressive"))
    assert main([chain, "--engine", "vllm"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("vllm serve") and "\n# vLLM 0." in out
    assert main([chain, "--engine", "sglang", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written == json.loads(json.dumps(asdict(engine_config(recorded("race_linear"), "sglang"))))
    assert main([chain, "--engine", "profile"]) == 0
    assert json.loads(capsys.readouterr().out)["schema_version"] == "1.0"
    assert main([plain, "--engine", "vllm"]) == 1
    assert capsys.readouterr().out.count("\n") == 1
    for words in ([chain, "--engine", "vlllm"], [str(tmp_path / "nowhere.dscope"), "--engine", "vllm"]):
        assert main(words) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith("error: ") and said.err.count("\n") == 1


def flags(config: EngineConfig) -> dict[str, str]:
    words = shlex.split(config.text)
    return {flag: word for flag, word in pairwise([*words, ""]) if flag.startswith("-")}


def test_llama_cpp_looks_up_no_more_tokens_than_it_drafts():
    for name, shortest in (("prompt lookup", "2"), ("suffix", "1"), ("no model", "1")):
        given = flags(engine_config(RUNS[name](), "llama.cpp"))
        assert given["--spec-ngram-simple-size-n"] == shortest and given["--spec-type"] == "ngram-simple"
        assert int(given["--spec-ngram-simple-size-n"]) <= int(given["--spec-ngram-simple-size-m"])
    chain = engine_config(looked_up("prompt_lookup", shortest=9, longest=9), "llama.cpp")
    assert flags(chain)["--spec-ngram-simple-size-n"] == flags(chain)["--spec-ngram-simple-size-m"] == "3"


def test_a_draft_from_the_text_or_the_model_is_whole_in_llama_cpp_alone():
    config = engine_config(RUNS["lookup or draft"](), "llama.cpp")
    assert flags(config)["--spec-type"] == "ngram-simple,draft-simple" and config.limits == ()
    for engine in ("vllm", "sglang", "tensorrt-llm", "transformers"):
        assert "copied from the text is lost" in engine_config(RUNS["lookup or draft"](), engine).limits[0]


def test_sglang_looks_up_chains_for_chains_and_trees_for_trees():
    given = flags(engine_config(RUNS["prompt lookup"](), "sglang"))
    assert (given["--speculative-num-draft-tokens"], given["--speculative-ngram-max-bfs-breadth"]) == ("4", "1")
    run = recorded("tree_helps")
    tree = replace(run, iterations=tuple(replace(each, draft_forwards=0) for each in run.iterations))
    config, figures = engine_config(tree, "sglang"), draft_figures(tree)
    assert flags(config)["--speculative-ngram-max-bfs-breadth"] == str(figures.breadth)
    assert flags(config)["--speculative-num-draft-tokens"] == str(max(figures.sizes) + 1)
    assert "grows trees of its own" in config.limits[0]
    assert "prompt_lookup:length=" in engine_config(tree, "vllm").limits[0]


def test_sampled_drafts_are_verified_as_sampled_where_an_engine_can():
    head = engine_config(RUNS["head, block"](), "sglang")
    assert head.text.endswith("--speculative-use-block-verification") and not any("verifier" in x for x in head.limits)
    assert any("verifier block" in limit for limit in engine_config(block_chain(), "sglang").limits)
    naive = replace(block_chain(), settings={**block_chain().settings, "verifier": "naive"})
    config = engine_config(naive, "llama.cpp")
    assert flags(config)["--spec-draft-sampling"] == "probabilistic" and config.limits == ()


def test_what_is_copied_from_the_text_is_as_long_as_the_run_copied():
    figures = DraftFigures((3, 0, 1, 1), 0, "text", (3, 9, 2, 3), (3, 9, 2, 3), 1, False)
    assert figures.chain_length == 9 and replace(figures, drafted_by="model").chain_length == 2


def test_a_chain_that_was_measured_stands_for_a_tree_with_its_price():
    tree, chain = recorded("tree_helps"), recorded("tree_helps_chain")
    measured = MeasuredChain("Linear chain", chain, 0.938, 0.91, 0.97)
    for engine in ("vllm", "tensorrt-llm", "llama.cpp", "transformers"):
        config = engine_config(tree, engine, measured)
        assert config.text == engine_config(chain, engine).text
        assert "your best chain is Linear chain (K = 3), 6% slower than this tree (0.94×" in config.limits[0]
        assert "95% interval 0.91 to 0.97" in config.limits[0]
    for engine in ("sglang", "profile"):
        assert engine_config(tree, engine, measured) == engine_config(tree, engine)
    said = [
        engine_config(tree, "vllm", MeasuredChain("Linear chain", chain, speed)).limits[0] for speed in (1.001, 1.2)
    ]
    assert "as fast as this tree (1.00× its speed, too few repeats" in said[0] and "20% faster" in said[1]
    open_ = engine_config(tree, "vllm", MeasuredChain("Linear chain", chain, 1.05, 0.32, 2.51)).limits[0]
    assert "which may be as fast as this tree (1.05×" in open_
    assert engine_config(chain, "vllm", measured) == engine_config(chain, "vllm"), "a chain needs no other one"


def test_notes_speak_of_a_load_test_only_where_there_is_one():
    for name in ("prompt lookup", "head"):
        config = engine_config(RUNS[name](), "sglang")
        assert any("SGLANG_SIMULATE" in note for note in config.notes) == bool(config.load_test) == (name == "head")


def test_lookups_carry_their_settings():
    given = {
        name: json.loads(shlex.split(engine_config(RUNS[name](), "vllm").text)[-1])
        for name in ("no model", "prompt lookup", "suffix")
    }
    assert given["no model"]["method"] == "ngram" and "prompt_lookup_min" not in given["no model"]
    assert (given["prompt lookup"]["prompt_lookup_min"], given["prompt lookup"]["prompt_lookup_max"]) == (2, 4)
    assert "max_matching_ngram_size=4" in engine_config(RUNS["prompt lookup"](), "transformers").text
    suffix = given["suffix"]
    assert suffix["method"] == "suffix" and suffix["suffix_decoding_max_cached_requests"] == 0
    assert (suffix["suffix_decoding_max_spec_factor"], suffix["suffix_decoding_min_token_prob"]) == (1.5, 0.1)
    assert any("counts in earlier outputs" in note for note in engine_config(RUNS["suffix"](), "vllm").notes)


def test_recycled_tokens_are_exported_as_a_profile_alone():
    run = looked_up("token_recycling", node_budget=80)
    for engine in ENGINES:
        config = engine_config(run, engine)
        assert bool(config.text) == (engine == "profile"), engine
        assert engine == "profile" or "method suffix or prompt_lookup" in config.limits[0]


def test_vllm_takes_the_best_chain_by_batch_size_where_it_is_known():
    run = recorded("tree_helps_chain")
    by_batch = ((1, 8, 4), (9, 64, 1))
    config = engine_config(run, "vllm", by_batch=by_batch)
    (line,) = [each for each in config.text.splitlines() if "--speculative-config" in each]
    made = json.loads(line.split("'")[1])
    assert made["num_speculative_tokens"] == 4
    assert made["num_speculative_tokens_per_batch_size"] == [list(each) for each in by_batch]
    assert any("your engine's costs differ" in note for note in config.notes)
    assert "per_batch_size" not in config.load_test and "per_batch_size" not in engine_config(run, "vllm").text
    never = engine_config(run, "vllm", by_batch=((1, 64, 0),))
    assert "per_batch_size" not in never.text


def test_a_chain_for_sglang_counts_the_root_and_names_only_what_sglang_knows():
    known, chain = ENGINE_SOURCES["sglang"], sglang_chain_command("org/t", "org/d", "draft_model", 3)
    words = chain.replace("\\\n", "").split()
    assert words[-6:] == [
        "--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4",
    ]  # fmt: skip
    lookup = sglang_chain_command("org/t", "", "ngram", 3, devices=4)
    assert "--tp-size 4" in lookup and "--tp-size" not in chain
    assert "NGRAM" in lookup and lookup.endswith("--speculative-num-draft-tokens 4") and "draft-model" not in lookup
    assert all(known.knows(word) for line in (chain, lookup) for word in line.split() if word.startswith("--"))
    assert "speculative" not in sglang_chain_command("org/t", "org/d", "eagle", 0)
