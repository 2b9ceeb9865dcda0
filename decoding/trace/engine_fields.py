"""Names that inference engines take and give, as their own sources of one version have them.

`engine_config` writes no name that `ENGINE_SOURCES` does not list; `engine_json` and `engine_text` read none that
`METRIC_SOURCES` does not list. To bring an engine up to date, read the files below in its new version, then change
names, version and date together.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineSource:
    """Where the names of an engine were read."""

    label: str  # what the engine is called
    version: str
    read: str  # date, ISO
    names: Mapping[str, tuple[str, ...]]  # by the file, of that version, that has them

    def knows(self, name: str) -> bool:
        """Whether one of the files has this name."""
        return any(name in listed for listed in self.names.values())


ENGINE_SOURCES: dict[str, EngineSource] = {
    "vllm": EngineSource(
        "vLLM", "0.33.0 (commit 4ba787ec9)", "2026-11-26",
        {
            "vllm/engine/arg_utils.py": ("--speculative-config", "--tensor-parallel-size"),
            "vllm/config/speculative.py": (
                "method", "model", "num_speculative_tokens", "num_speculative_tokens_per_batch_size",
                "prompt_lookup_min", "prompt_lookup_max", "draft_sample_method", "rejection_sample_method",
                "synthetic_acceptance_rates", "suffix_decoding_max_tree_depth", "suffix_decoding_max_spec_factor",
                "suffix_decoding_min_token_prob", "suffix_decoding_max_cached_requests",
                # values of `method`, `draft_sample_method` and `rejection_sample_method`
                "draft_model", "ngram", "suffix", "eagle", "eagle3", "greedy", "probabilistic", "standard", "synthetic",
                "block",
            ),
        },
    ),
    "sglang": EngineSource(
        "SGLang", "0.5.23", "2026-11-26",
        {
            "sglang/srt/arg_groups/fields/model.py": ("--model-path",),
            "sglang/srt/arg_groups/fields/parallel.py": ("--tp-size",),
            "sglang/srt/arg_groups/fields/spec.py": (
                "--speculative-algorithm", "--speculative-draft-model-path", "--speculative-num-steps",
                "--speculative-eagle-topk", "--speculative-num-draft-tokens", "--speculative-ngram-max-bfs-breadth",
                "--speculative-use-rejection-sampling", "--speculative-use-block-verification", "EAGLE", "EAGLE3",
                "STANDALONE", "NGRAM",
            ),
            "sglang/srt/speculative/eagle_utils.py": (),  # the root is one of the draft tokens
            "sglang/srt/arg_groups/speculative_hook.py": (),  # what is refused, and what takes another's place
            "sglang/srt/environ.py": ("SGLANG_SIMULATE_ACC_LEN",),
        },
    ),
    "tensorrt-llm": EngineSource(
        "TensorRT-LLM", "commit 000439672005", "2026-11-26",
        {
            "docs/source/features/speculative-decoding.md": ("--config", "speculative_config"),
            "tensorrt_llm/llmapi/llm_args.py": (
                "decoding_type", "max_draft_len", "speculative_model", "max_total_draft_tokens", "use_dynamic_tree",
                "dynamic_tree_max_topK", "draft_len_schedule", "Draft_Target", "Eagle3", "NGram",
            ),
        },
    ),
    "llama.cpp": EngineSource(
        "llama.cpp", "b11434", "2026-11-26",
        {
            "common/arg.cpp": (
                "-m", "-md", "--spec-type", "--spec-draft-n-max", "--spec-draft-p-min", "--spec-ngram-simple-size-m",
                "--spec-ngram-simple-size-n", "--spec-draft-sampling", "probabilistic", "--spec-synth-rates",
            ),
            "common/speculative.cpp": ("draft-simple", "draft-eagle3", "ngram-simple"),
            "common/ngram-map.cpp": (),  # drafts shorter than what was looked up are left out
        },
    ),
    "transformers": EngineSource(
        "Hugging Face transformers", "5.23.0", "2026-11-26",
        {
            "src/transformers/generation/configuration_utils.py": (
                "GenerationConfig", "num_assistant_tokens", "num_assistant_tokens_schedule", "constant",
                "assistant_confidence_threshold", "prompt_lookup_num_tokens", "max_matching_ngram_size",
                "do_sample", "temperature", "top_p", "top_k", "max_new_tokens",
            ),
            "src/transformers/generation/candidate_generator.py": ("generation_config",),
            "src/transformers/generation/utils.py": ("assistant_model", "generation_config"),
        },
    ),
    "profile": EngineSource(
        "speculation_profile.json", "schema 1.0 of NVIDIA Model-Optimizer (pull request 2247, commit 095124e9d582)",
        "2026-11-26",
        {
            "examples/specdec_bench/specdec_bench/speculation_profile.py": (
                "schema_version", "measured", "method", "draft_checkpoint", "target_model", "num_speculative_tokens",
                "block_size", "max_supported_k", "verification_method", "conditional_accept_rates",
                "marginal_accept_rates", "mean_accept_length", "mean_accept_length_per_request", "accept_length_model",
                "accept_length_by_k", "acceptance_length_histogram", "per_category", "measurement_conditions",
                "validation", "mean_consistency", "implied_mean_accept_length", "reported_mean_accept_length",
                "abs_delta", "tolerance", "passed", "marginal_monotonicity", "violations",
                # values
                "longest_prefix", "block", "chain_analytic", "measured_per_k", "draft_model", "eagle",
            ),
        },
    ),
}  # fmt: skip
ENGINES = tuple(ENGINE_SOURCES)

# What they say about their speculative decoding.
METRIC_SOURCES: dict[str, EngineSource] = {
    "vllm": EngineSource(
        "vLLM", "0.33.0 (commit 4ba787ec9), and commits 005a810bc40f (loggers.py) and 000fc94b754f (config/vllm.py)",
        "2026-11-26",
        {
            "vllm/config/vllm.py": ("tensor_parallel_size",),
            "vllm/v1/metrics/loggers.py": (
                "Avg generation throughput", "Running", "vllm:num_requests_running",
            ),
            "vllm/v1/spec_decode/metrics.py": (
                "vllm:spec_decode_num_drafts", "vllm:spec_decode_num_draft_tokens",
                "vllm:spec_decode_num_accepted_tokens", "vllm:spec_decode_num_accepted_tokens_per_pos", "position",
                "SpecDecoding metrics", "Mean acceptance length", "Accepted", "Drafted",
                "Per-position acceptance rate", "Avg Draft acceptance rate", "Drafted throughput",
            ),
            "vllm/entrypoints/generate/base/protocol.py": (
                "speculative_decoding", "mean_acceptance_length", "draft_acceptance_rate", "acceptance_histogram",
                "num_spec_steps", "num_accepted_draft_tokens", "num_draft_tokens", "num_spec_tokens",
            ),
            "vllm/entrypoints/openai/chat_completion/protocol.py": ("metrics", "usage"),
            "vllm/entrypoints/serve/engine/protocol.py": ("completion_tokens",),
        },
    ),
    "sglang": EngineSource(
        "SGLang", "0.5.23, and commit 00eef5422c62 (scheduler_metrics_mixin.py)", "2026-11-26",
        {
            "sglang/srt/observability/scheduler_metrics_mixin.py": (
                "Decode batch", "#running-req", "accept len", "gen throughput (token/s)",
            ),
            "sglang/srt/managers/tokenizer_manager.py": (
                "meta_info", "completion_tokens", "spec_accept_rate", "spec_accept_length", "spec_num_correct_drafts",
                "spec_num_proposed_drafts", "spec_verify_ct", "spec_correct_drafts_histogram",
            ),
            "sglang/srt/entrypoints/http_server.py": ("internal_states",),
            "sglang/srt/managers/scheduler_components/internal_state.py": ("avg_spec_accept_length",),
            "sglang/srt/arg_groups/fields/spec.py": ("speculative_num_draft_tokens",),
            "sglang/srt/arg_groups/fields/parallel.py": ("tp_size",),
        },
    ),
    "tensorrt-llm": EngineSource(
        "TensorRT-LLM", "commits 086f6921cf23, a98a9061d72f (types.h) and 9521caf4696c (py_executor.py)", "2026-11-26",
        {
            "cpp/tensorrt_llm/executor/jsonSerialization.cpp": (
                "specDecodingStats", "numDraftTokens", "numAcceptedTokens", "numRequestsWithDraftTokens",
                "acceptanceLength",
            ),
            "cpp/include/tensorrt_llm/executor/types.h": (),  # what each of them counts
            "tensorrt_llm/_torch/pyexecutor/py_executor.py": (),  # acceptanceLength counts the token of the target
        },
    ),
    "llama.cpp": EngineSource(
        "llama.cpp", "commits 001d906a6d86, 00efb3e18426 (server-task.cpp) and fb4026604c67 (draft acceptance rate)",
        "2026-11-26",
        {
            "tools/server/server-context.cpp": (
                "draft acceptance", "draft acceptance rate", "accepted", "generated", "mean len", "acc per pos",
            ),
            "tools/server/server-task.cpp": ("timings", "predicted_n", "draft_n", "draft_n_accepted"),
        },
    ),
    "aiperf": EngineSource(
        "AIPerf", "0.13.0", "2026-11-26",
        {
            "aiperf/common/models/record_models.py": ("spec_decode_acceptance",),
            "aiperf/common/models/spec_decode_models.py": (
                "mean_acceptance_length", "acceptance_histogram", "num_accepted_draft_tokens", "num_draft_tokens",
                "num_spec_steps", "num_spec_tokens", "completion_tokens",
            ),
            "aiperf/metrics/types/spec_decode_metrics.py": (
                "spec_decode_acceptance_length", "spec_decode_token_weighted_acceptance_length",
                "spec_decode_overall_draft_acceptance_rate", "spec_decode_accepted_per_verified",
            ),
        },
    ),
    "profile": EngineSource(
        "speculation_profile.json", "schema 1.0 of NVIDIA Model-Optimizer (pull request 2247, commit 095124e9d582)",
        "2026-11-26",
        {
            "examples/specdec_bench/specdec_bench/speculation_profile.py": (
                "measured", "num_speculative_tokens", "verification_method", "marginal_accept_rates",
                "mean_accept_length", "mean_accept_length_per_request", "accept_length_model",
                "acceptance_length_histogram",
                # values
                "block", "measured_per_k",
            ),
        },
    ),
}  # fmt: skip
