"""A run's method as the configuration of an inference engine, with what that engine cannot do said beside it.

Every figure is one of the run (see `DraftFigures`), but for the chain by batch size, which is given.
"""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from decoding.common.errors import printable, require
from decoding.trace.draft_figures import DIGITS, DraftFigures, draft_figures
from decoding.trace.engine_fields import ENGINE_SOURCES, ENGINES
from decoding.trace.engine_limits import (
    DRAFT_PLACE,
    MeasuredChain,
    chain_limits,
    draft,
    figure_notes,
    head,
    head_limits,
    nearest_beam,
    quoted,
    rounded_up,
    rule,
    speculation_profile,
    speed_words,
    target,
    tree_words,
    verifier_limits,
)
from decoding.trace.records import RunTrace


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What to give an engine.

    Attributes:
        engine, version, sources, read: what the engine is called, and in which files of which version the names of
            its fields were read, when (ISO date).
        language: of the texts: `sh`, `yaml`, `python` or `json`.
        text: to paste; empty where there is nothing to export.
        load_test: the same with the acceptance of this run in the place of the draft's, for load tests whose output is
            not text of the target; empty where the engine has no such thing.
        limits: what the engine cannot do of the run's method, and the nearest thing that it can, in a few sentences.
        notes: what to know of the fields.
    """

    engine: str
    version: str
    sources: tuple[str, ...]
    read: str
    language: Literal["sh", "yaml", "python", "json"]
    text: str
    load_test: str
    limits: tuple[str, ...]
    notes: tuple[str, ...]


def engine_config(
    run: RunTrace, engine: str, chain: MeasuredChain | None = None, by_batch: Sequence[tuple[int, int, int]] = ()
) -> EngineConfig:
    """A run's method as the configuration of an engine, one of `ENGINES`.

    Args:
        chain: the best chain measured beside the run, for engines that verify no trees like the run's.
        by_batch: first and last batch size, and the best chain's tokens there, for engines that change it.

    Raises `SettingsError` where there is no such engine.
    """
    require(engine in ENGINE_SOURCES, f"There is no engine {engine!r} to export for: choose {', '.join(ENGINES)}.")
    figures = draft_figures(run)
    if figures is None:
        nothing = (
            f"This run drafted nothing (method {printable(run.method)}), so there is nothing to export: record a run "
            "with a method that drafts, such as linear."
        )
        return _made(engine, limits=[nothing])
    if rule(run) == "token_recycling" and engine != "profile":
        nearest = (
            f"Draftscope knows of nothing in {ENGINE_SOURCES[engine].label} that recycles the target's candidates. The "
            "nearest without a draft model is a lookup in the text: record the same prompt with method suffix or "
            "prompt_lookup and export that run."
        )
        return _made(engine, limits=[nearest])
    writer = partial(_vllm, by_batch=by_batch) if engine == "vllm" else _WRITERS[engine]
    own = None if chain is None else draft_figures(chain.run)
    if chain is None or own is None or _verifies(engine, run, figures):
        return writer(run, figures)
    config = writer(chain.run, own)
    said = (
        f"{config.engine} verifies chains only with this draft: your best chain is {chain.label} "
        f"(K = {own.chain_length}), {speed_words(chain)}. Its configuration stands here."
    )
    return replace(config, limits=(said, *config.limits))


def _verifies(engine: str, run: RunTrace, figures: DraftFigures) -> bool:
    """Whether an engine verifies the run's trees, or some of its own in their place."""
    if figures.chains or engine == "profile":
        return True
    with_trees = engine == "sglang" or (engine == "tensorrt-llm" and figures.drafted_by == "head")
    return with_trees and nearest_beam(run, figures) is not None


def _vllm(run: RunTrace, figures: DraftFigures, by_batch: Sequence[tuple[int, int, int]] = ()) -> EngineConfig:
    length, verifier = figures.chain_length, run.settings.get("verifier")
    config: dict[str, Any] = {"method": {"model": "draft_model", "head": "eagle", "text": "ngram"}[figures.drafted_by]}
    if figures.drafted_by != "text":
        config["model"] = draft(run, figures)
    config["num_speculative_tokens"] = length
    if figures.drafted_by == "text":
        config |= _vllm_lookup(run)
    test = config | {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": figures.rates(length)}
    if figures.chains and figures.single_path:
        config["draft_sample_method"] = "probabilistic"
    if figures.chains and verifier == "block":
        config["rejection_sample_method"] = "block"
    most = max((tokens for _, _, tokens in by_batch), default=0)
    if most and figures.drafted_by != "text":
        config |= {"num_speculative_tokens": most, "num_speculative_tokens_per_batch_size": list(by_batch)}
        batches = "is modelled from passes measured over batches by Draftscope: your engine's costs differ, so try it"
    else:
        batches = "is left out, because no passes over batches were measured: Your engine and Tune live measure them"
    notes = [
        "synthetic_acceptance_rates are marginal: entry i is how often the first i + 1 drafted tokens are accepted."
    ]
    if figures.drafted_by != "text":
        entries = "num_speculative_tokens_per_batch_size takes [first batch size, last batch size, tokens] entries"
        notes.append(f"{entries}; it {batches}.")
    if rule(run) == "suffix":
        notes.append("vLLM looks suffixes up with a package of its own: pip install arctic-inference==0.1.1.")
        notes.append(
            "vLLM's suffix_decoding_max_tree_depth limits match and draft together, and it drafts the likeliest chain; "
            "suffix_decoding_max_cached_requests 0 keeps it to the request's own text, as in this run: above 0 it also "
            "counts in earlier outputs."
        )
    elif figures.drafted_by == "text" and "prompt_lookup_min" not in config:
        notes.append(
            "prompt_lookup_min and prompt_lookup_max, the n-grams that are looked up, are left at vLLM's defaults."
        )
    return _made(
        "vllm",
        text=vllm_command(target(run), config),
        load_test=vllm_command(target(run), test),
        limits=[*chain_limits("vLLM", run, figures), *verifier_limits("vLLM", run, figures, ("naive", "block"))],
        notes=[*notes, *figure_notes(run, figures, load_test=True)],
    )


def _vllm_lookup(run: RunTrace) -> dict[str, Any]:
    """How vLLM looks tokens up in the text as the run's drafter did; empty for a drafter that it does not know."""
    settings = run.settings
    if rule(run) == "prompt_lookup":
        return {"prompt_lookup_min": settings.get("shortest"), "prompt_lookup_max": settings.get("longest")}
    if rule(run) == "suffix":
        return {
            "method": "suffix",
            "suffix_decoding_max_tree_depth": settings.get("max_depth"),
            "suffix_decoding_max_spec_factor": settings.get("per_matched_token"),
            "suffix_decoding_min_token_prob": settings.get("least_share"),
            "suffix_decoding_max_cached_requests": 0,
        }
    return {}


def vllm_command(target_name: str, config: Mapping[str, Any], devices: int = 1) -> str:
    """vLLM's command for a target on so many `devices`, with its `--speculative-config`; empty: no speculation."""
    flags: dict[str, Any] = {"--tensor-parallel-size": devices} if devices > 1 else {}
    if config:
        flags["--speculative-config"] = json.dumps(config, ensure_ascii=False)
    return _command(["vllm", "serve", printable(target_name)], flags)


def sglang_chain_command(target_name: str, draft: str, method: str, length: int, devices: int = 1) -> str:
    """SGLang's command for chains of one length, 0 for none, on so many `devices`; `method` is what vLLM calls it."""
    flags: dict[str, Any] = {"--model-path": printable(target_name)}
    if devices > 1:
        flags["--tp-size"] = devices
    if length:
        algorithms = {"draft_model": "STANDALONE", "eagle": "EAGLE", "eagle3": "EAGLE3", "ngram": "NGRAM"}
        flags["--speculative-algorithm"] = algorithms[method]
        if method == "ngram":
            flags["--speculative-ngram-max-bfs-breadth"] = 1
        else:
            flags |= {"--speculative-draft-model-path": printable(draft), "--speculative-num-steps": length}
            flags["--speculative-eagle-topk"] = 1
        flags["--speculative-num-draft-tokens"] = length + 1  # the root is one of them
    return _command(["python", "-m", "sglang.launch_server"], flags)


def _sglang(run: RunTrace, figures: DraftFigures) -> EngineConfig:
    flags: dict[str, Any] = {
        "--model-path": target(run),
        "--speculative-algorithm": {"model": "STANDALONE", "head": "EAGLE", "text": "NGRAM"}[figures.drafted_by],
    }
    limits = head_limits("SGLang", run, figures)
    beam = None if figures.chains or figures.drafted_by == "text" else nearest_beam(run, figures)
    if figures.drafted_by == "text":
        breadth, nodes = 1, figures.chain_length
        if not figures.chains and figures.breadth:
            breadth, nodes = figures.breadth, max(figures.sizes)
            limits.append(
                f"SGLang grows trees of its own from what followed earlier in the text. The nearest to this run's "
                f"trees ({tree_words(figures)}) has as many nodes ({nodes}) and at most as many children of a node "
                f"({breadth}); what it accepts was not measured in this run."
            )
        flags |= {"--speculative-num-draft-tokens": nodes + 1, "--speculative-ngram-max-bfs-breadth": breadth}
        limits += [] if breadth > 1 else chain_limits("SGLang", run, figures)
    else:
        depth, breadth, nodes = beam or (figures.chain_length, 1, figures.chain_length)
        flags |= {
            "--speculative-draft-model-path": draft(run, figures),
            "--speculative-num-steps": depth,
            "--speculative-eagle-topk": breadth,
            "--speculative-num-draft-tokens": nodes + 1,
        }
        if beam is None and not figures.chains:
            limits.append(
                "This run was recorded without its trees, so how many children their nodes had cannot be read: record "
                f"it with --record full. Until then a chain stands here, of {rounded_up(figures)}."
            )
        elif beam is None:
            limits += chain_limits("SGLang", run, figures, heads=False)
        elif rule(run) != "eagle2":
            limits.append(
                f"SGLang grows every tree as EAGLE-2's beam. The nearest to this run's trees ({tree_words(figures)}) "
                f"is a beam with their greatest depth ({depth}), most children of a node ({breadth}) and at most "
                f"{nodes} nodes. What it accepts was not measured in this run: record the same prompt with method "
                f"eagle2:max_depth={depth},beam_width={breadth},node_budget={nodes} and compare."
            )
    sampled: tuple[str, ...] = ()
    if figures.drafted_by == "head" and figures.chains and figures.single_path:
        # with greedy drafts, or a draft model, SGLang accepts by the target's distribution alone
        sampled = ("naive", "block")
        flags |= _SGLANG_SAMPLED.get(str(run.settings.get("verifier")), {})
    command = _command(["python", "-m", "sglang.launch_server"], flags)
    simulated = round(1 + figures.mean_accepted, DIGITS)
    load_test = "" if figures.drafted_by == "text" else f"SGLANG_SIMULATE_ACC_LEN={simulated} {command}"
    simulates = (
        "SGLANG_SIMULATE_ACC_LEN is the mean of committed tokens per pass, the bonus token included; SGLang draws "
        "lengths around it and takes no rates by depth."
    )
    return _made(
        "sglang",
        text=command,
        load_test=load_test,
        limits=[*limits, *verifier_limits("SGLang", run, figures, sampled)],
        notes=[
            "--speculative-num-draft-tokens counts the root, the last committed token: it is the drafted nodes that "
            "are verified, plus 1.",
            *([simulates] if load_test else []),
            *figure_notes(run, figures, load_test=bool(load_test)),
        ],
    )


_SGLANG_SAMPLED: dict[str, dict[str, Any]] = {  # by verifier: flags without a value
    "naive": {"--speculative-use-rejection-sampling": None},
    "block": {"--speculative-use-block-verification": None},
}


def _tensorrt_llm(run: RunTrace, figures: DraftFigures) -> EngineConfig:
    fields: dict[str, Any] = {
        "decoding_type": {"model": "Draft_Target", "head": "Eagle3", "text": "NGram"}[figures.drafted_by],
        "max_draft_len": figures.chain_length,
    }
    if figures.drafted_by != "text":
        fields["speculative_model"] = draft(run, figures)
    limits = chain_limits("TensorRT-LLM", run, figures)
    beam = nearest_beam(run, figures) if figures.drafted_by == "head" and not figures.chains else None
    if beam is not None:
        depth, breadth, nodes = beam
        nodes = min(nodes, depth * breadth)  # more are refused
        fields |= {
            "max_draft_len": depth,
            "use_dynamic_tree": True,
            "dynamic_tree_max_topK": breadth,
            "max_total_draft_tokens": nodes,
        }
        limits = head_limits("TensorRT-LLM", run, figures)
        limits.append(
            "TensorRT-LLM grows trees of its own, at most dynamic_tree_max_topK x max_draft_len nodes. The nearest to "
            f"this run's trees ({tree_words(figures)}) has their greatest depth ({depth}), most children of a node "
            f"({breadth}) and {nodes} nodes; what it accepts was not measured in this run."
        )
    lines = [f"# trtllm-serve {shlex.quote(target(run))} --config FILE, FILE being this text", "speculative_config:"]
    lines += [f"  {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    return _made(
        "tensorrt-llm",
        text="\n".join(lines),
        limits=[*limits, *verifier_limits("TensorRT-LLM", run, figures, ())],
        notes=[
            "max_draft_len and max_total_draft_tokens count drafted tokens only, the root left out.",
            "draft_len_schedule gives a draft length by batch size; it is left out, because this run decoded one "
            "sequence at a time.",
            *figure_notes(run, figures),
        ],
    )


def _llama_cpp(run: RunTrace, figures: DraftFigures) -> EngineConfig:
    length, kinds = figures.chain_length, []
    flags: dict[str, Any] = {"-m": f"{target(run)}.gguf"}
    looks_up = figures.drafted_by == "text" or rule(run) == "lookup_or_draft"
    if looks_up:
        kinds.append("ngram-simple")
        # of what followed, fewer tokens than were looked up are not drafted
        flags["--spec-ngram-simple-size-n"] = min(int(run.settings.get("shortest") or 1), length)
        flags["--spec-ngram-simple-size-m"] = length
    if figures.drafted_by != "text":
        kinds.append("draft-simple" if figures.drafted_by == "model" else "draft-eagle3")
        flags |= {"-md": f"{draft(run, figures)}.gguf", "--spec-draft-n-max": length, "--spec-draft-p-min": 0}
        if figures.chains and figures.single_path and run.sampling.temperature > 0:
            flags["--spec-draft-sampling"] = "probabilistic"
    flags["--spec-type"] = ",".join(kinds)
    rates = ",".join(str(rate) for rate in figures.rates(length))
    return _made(
        "llama.cpp",
        text=_command(["llama-server"], flags),
        load_test=_command(["llama-server"], flags | {"--spec-synth-rates": rates}),
        limits=[
            *chain_limits("llama-server", run, figures, sources=2),
            *verifier_limits("llama.cpp", run, figures, ("naive",)),
        ],
        notes=[
            "Model files are GGUF: convert_hf_to_gguf.py of llama.cpp writes them; both names here are to be replaced "
            "by those of your files.",
            "--spec-draft-p-min 0 lets every chain have its full length; above 0 a chain ends where the draft is less "
            "sure than that of a token, and which value gives this run's lengths cannot be read from the run.",
            *(
                [
                    "--spec-ngram-simple-size-n is the one number of last tokens that is looked up: the fewest of this "
                    "run's drafter. It must not be above --spec-ngram-simple-size-m, or nothing is drafted."
                ]
                if looks_up
                else []
            ),
            "--spec-synth-rates are marginal: entry i is how often the first i + 1 drafted tokens are all accepted.",
            "--draft-max and --draft-min were removed; --spec-draft-n-max has taken the place of the first.",
            *figure_notes(run, figures, load_test=True),
        ],
    )


def _transformers(run: RunTrace, figures: DraftFigures) -> EngineConfig:
    length, sampling = figures.chain_length, run.sampling
    lines = [
        "from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig",
        "",
        f"tokenizer = AutoTokenizer.from_pretrained({quoted(target(run))})",
        f"target = AutoModelForCausalLM.from_pretrained({quoted(target(run))})",
    ]
    options = [f"max_new_tokens={run.max_new_tokens}", f"do_sample={sampling.temperature > 0}"]
    if sampling.temperature > 0:
        options += [f"temperature={sampling.temperature!r}", f"top_p={sampling.top_p!r}", "top_k=0"]
    call = "**inputs, generation_config=config"
    if figures.drafted_by == "text":
        options.append(f"prompt_lookup_num_tokens={length}")
        if (longest := run.settings.get("longest")) is not None:
            options.append(f"max_matching_ngram_size={longest}")
    else:
        # A run with a head records the head in place of the pair's draft model.
        assistant = DRAFT_PLACE if figures.drafted_by == "head" else run.pair.draft.name
        lines += [
            f"draft = AutoModelForCausalLM.from_pretrained({quoted(assistant)})",
            f"draft.generation_config.num_assistant_tokens = {length}",
            'draft.generation_config.num_assistant_tokens_schedule = "constant"',
            "draft.generation_config.assistant_confidence_threshold = 0.0",
        ]
        call += ", assistant_model=draft"
    lines += [
        f"config = GenerationConfig({', '.join(options)})",
        'inputs = tokenizer("your prompt", return_tensors="pt")',
        f"output = target.generate({call})",
    ]
    limits = chain_limits("transformers", run, figures, heads=False)
    if figures.drafted_by == "head":
        limits.insert(
            0,
            f"transformers takes no trained head beside the target: the nearest to the draft head {head(run)} is the "
            f"pair's draft model as assistant_model, its path in the place of {DRAFT_PLACE}, whose acceptance was not "
            "measured in this run; record the same prompt without draft_head and compare.",
        )
    return _made(
        "transformers",
        text="\n".join(lines),
        limits=[*limits, *verifier_limits("transformers", run, figures, ("naive",))],
        notes=[
            "num_assistant_tokens and assistant_confidence_threshold are read from the assistant's own "
            "generation_config, not from the one that generate is given.",
            "assistant_confidence_threshold 0 lets every chain have its full length; above 0 a chain ends where the "
            "draft is less sure than that, and which value gives this run's lengths cannot be read from the run.",
            "Assisted generation takes one sequence at a time.",
            *figure_notes(run, figures),
        ],
    )


def _profile(run: RunTrace, figures: DraftFigures) -> EngineConfig:
    limits = []
    if not figures.chains:
        limits.append(
            f"The rates are of this run's trees ({tree_words(figures)}), not of a chain: entry i is how often the "
            "accepted path was at least i + 1 tokens long. For a chain's, record the same prompt with method linear."
        )
    return _made(
        "profile",
        text=json.dumps(speculation_profile(run, figures), indent=2),
        limits=limits,
        notes=[
            "The schema was read from a pull request that is not merged: the main branch of Model-Optimizer (commit "
            "a2fbac7bad8a) and its version 0.47.0 do not have it yet.",
            "mean_accept_length and the histogram's lengths count the bonus token.",
            "The schema leaves open what draft_checkpoint, target_model and measurement_conditions hold.",
            *figure_notes(run, figures),
        ],
    )


_WRITERS: dict[str, Callable[[RunTrace, DraftFigures], EngineConfig]] = {
    "vllm": _vllm, "sglang": _sglang, "tensorrt-llm": _tensorrt_llm, "llama.cpp": _llama_cpp,
    "transformers": _transformers, "profile": _profile,
}  # fmt: skip
_LANGUAGES: dict[str, Literal["sh", "yaml", "python", "json"]] = {
    "vllm": "sh", "sglang": "sh", "tensorrt-llm": "yaml", "llama.cpp": "sh", "transformers": "python",
    "profile": "json",
}  # fmt: skip


def _made(
    engine: str, text: str = "", load_test: str = "", limits: Sequence[str] = (), notes: Sequence[str] = ()
) -> EngineConfig:
    source = ENGINE_SOURCES[engine]
    return EngineConfig(
        engine=source.label,
        version=source.version,
        sources=tuple(source.names),
        read=source.read,
        language=_LANGUAGES[engine],
        text=text,
        load_test=load_test,
        limits=tuple(limits),
        notes=tuple(notes),
    )


def _command(program: list[str], flags: dict[str, Any]) -> str:
    """A command for a POSIX shell, a flag per line; one whose value is None has none."""
    lines = [
        " ".join(map(shlex.quote, program)),
        *(name if value is None else f"{name} {shlex.quote(str(value))}" for name, value in flags.items()),
    ]
    return " \\\n  ".join(lines)
