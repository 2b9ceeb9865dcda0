"""What an engine's own classes make of configurations, and what its own counters say; run by an engine's own Python.

`python engine_probe.py ENGINE < asked.json > answers.json`. It imports nothing of the program. Asked is an object:
`cases`, each with `name` and `given` (what was exported, by name), and `passes`, pairs of drafted and accepted tokens.
The answer: `version`; `parsed`, for each case the same names with the values that they have in the parsed object, and
what follows from these: `drafts` (model, head or text), `chain`, `length`; or `refused` with the engine's own words;
and `metrics`, for each form its text.
"""

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

Given = dict[str, Any]


class VLLM:
    """`EngineArgs` as `vllm serve` fills it; the platform is named, because none is found without a GPU."""

    def __init__(self):
        import vllm.platforms
        from vllm.platforms.cpu import CpuPlatform

        vllm.platforms._current_platform = CpuPlatform()
        from vllm.engine.arg_utils import EngineArgs
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        self.version = version("vllm")
        self.arguments, self.parser = EngineArgs, EngineArgs.add_cli_args(FlexibleArgumentParser())

    def parse(self, given: Given) -> Given:
        from vllm.config import ParallelConfig

        words = ["--model", given["model"], "--speculative-config", json.dumps(given["config"])]
        arguments = self.arguments.from_cli_args(self.parser.parse_args(words))
        found = arguments.create_speculative_config(arguments.create_model_config(), ParallelConfig())
        drafts = "model" if found.uses_draft_model() else "head" if found.use_eagle() else "text"
        parsed = {name: getattr(found, name) for name in given["config"]}
        return {**parsed, "drafts": drafts, "chain": True, "length": found.num_speculative_tokens}

    def metrics(self, passes: list[tuple[int, int]]) -> dict[str, str]:
        import prometheus_client
        from vllm.entrypoints.generate.base.protocol import PerRequestMetrics, SpeculativeDecodingMetrics
        from vllm.v1.metrics.stats import RequestSpecDecodeMetrics
        from vllm.v1.spec_decode.metrics import SpecDecodingLogging, SpecDecodingProm, SpecDecodingStats

        most = max(drafted for drafted, _ in passes)
        stats, request = SpecDecodingStats.new(most), RequestSpecDecodeMetrics.new(most)
        for drafted, accepted in passes:
            stats.observe_draft(drafted, accepted)
            request.observe(drafted, accepted, detailed=True)
        counters = SpecDecodingProm(
            SimpleNamespace(num_speculative_tokens=most), ["model_name", "engine"], {0: ["target", "0"]}
        )
        counters.observe(stats)
        lines: list[str] = []
        log = SpecDecodingLogging()
        log.observe(stats)
        log.log(lambda words, *values: lines.append(words % values))
        own = PerRequestMetrics(speculative_decoding=SpeculativeDecodingMetrics(**request.to_dict()))
        tokens = 1 + sum(accepted + 1 for _, accepted in passes)
        response = {"choices": [], "usage": {"completion_tokens": tokens}, "metrics": own.model_dump()}
        return {
            "scrape": prometheus_client.generate_latest().decode(),
            "log": "\n".join(lines),
            "response": json.dumps(response),
        }


class SGLang:
    """`ServerArgs` as the server parses and resolves them; a device is named, because none is found without a GPU."""

    def __init__(self):
        from sglang.srt.server_args import prepare_server_args

        self.version, self.prepare = version("sglang"), prepare_server_args

    def parse(self, given: Given) -> Given:
        from sglang.srt.environ import envs
        from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

        flags, environment = given["flags"], given["environment"]
        words = [word for name, value in flags.items() for word in ([name] if value is None else [name, str(value)])]
        os.environ.update(environment)
        try:
            arguments = self.prepare([*words, "--device", "cuda"])
            arguments.resolve_once()
            found, simulated = arguments.resolved_dict(), {name: getattr(envs, name).get() for name in environment}
        finally:
            for name in environment:
                del os.environ[name]
        algorithm = SpeculativeAlgorithm.from_string(found["speculative_algorithm"])
        drafts = "model" if algorithm.is_standalone() else "text" if algorithm.is_ngram() else "head"
        chain = found["speculative_eagle_topk"] == 1
        length = found["speculative_num_draft_tokens"] - 1
        parsed = {name: found[name.removeprefix("--").replace("-", "_")] for name in flags}
        return {**parsed, **simulated, "drafts": drafts, "chain": chain, "length": length}

    def metrics(self, passes: list[tuple[int, int]]) -> dict[str, str]:
        from sglang.srt.managers import tokenizer_manager

        most = max(drafted for drafted, _ in passes)
        histogram = [sum(accepted == length for _, accepted in passes) for length in range(most + 1)]
        answer = SimpleNamespace(
            spec_verify_ct=[len(passes)],
            spec_num_correct_drafts=[sum(accepted for _, accepted in passes)],
            spec_correct_drafts_histogram=[histogram],
            completion_tokens=[1 + sum(accepted + 1 for _, accepted in passes)],
        )
        tokenizer_manager.get_spec = lambda: SimpleNamespace(speculative_num_draft_tokens=most + 1)
        tokenizer_manager._ragged_verify_cap_accept = lambda: False
        meta: dict[str, Any] = {"completion_tokens": answer.completion_tokens[0]}
        tokenizer_manager.TokenizerManager._calculate_spec_decoding_metrics(None, meta, answer, 0)
        return {"response": json.dumps({"text": "", "meta_info": meta})}


class Transformers:
    """`GenerationConfig`, checked strictly, and the mode of generation that it asks for."""

    def __init__(self):
        self.version = version("transformers")

    def parse(self, given: Given) -> Given:
        from transformers import GenerationConfig

        config, assistant = GenerationConfig(**given["config"]), GenerationConfig()
        config.validate(strict=True)
        for name, value in given["assistant"].items():
            if not hasattr(assistant, name):
                raise AttributeError(f"GenerationConfig has no {name}")
            setattr(assistant, name, value)
        assistant.validate(strict=True)
        drafter = SimpleNamespace(generation_config=assistant) if given["assistant"] else None
        mode = config.get_generation_mode(assistant_model=drafter)
        if mode.value != "assisted_generation":
            raise ValueError(f"the mode of generation is {mode.value}")
        parsed = {name: getattr(config, name) for name in given["config"]}
        parsed |= {name: getattr(assistant, name) for name in given["assistant"]}
        length = assistant.num_assistant_tokens if drafter else config.prompt_lookup_num_tokens
        return {**parsed, "drafts": "model" if drafter else "text", "chain": True, "length": length}

    def metrics(self, passes: list[tuple[int, int]]) -> dict[str, str]:
        return {}


ENGINES: dict[str, Callable[[], VLLM | SGLang | Transformers]] = {
    "vllm": VLLM, "sglang": SGLang, "transformers": Transformers,
}  # fmt: skip


def answers(name: str, asked: dict[str, Any]) -> dict[str, Any]:
    engine, parsed = ENGINES[name](), {}
    for case in asked["cases"]:
        try:
            parsed[case["name"]] = engine.parse(case["given"])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what an engine refuses with is reported
            parsed[case["name"]] = {"refused": f"{type(error).__name__}: {error}"}
    return {"version": engine.version, "parsed": parsed, "metrics": engine.metrics(asked["passes"])}


if __name__ == "__main__":
    with contextlib.redirect_stdout(io.StringIO()):  # engines talk
        answer = json.dumps(answers(sys.argv[1], json.load(sys.stdin)), default=str)
    print(answer)
