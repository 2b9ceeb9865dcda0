"""Names of flags, fields and values that inference engines take, as their own sources of one version have them.

`engine_config` writes no name that is not listed here. To bring an engine up to date, read the files below in its new
version, then change names, version and date together.
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
            "vllm/engine/arg_utils.py": ("--speculative-config",),
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
            "sglang/srt/arg_groups/fields/spec.py": (
                "--speculative-algorithm", "--speculative-draft-model-path", "--speculative-num-steps",
                "--speculative-eagle-topk", "--speculative-num-draft-tokens", "EAGLE", "EAGLE3", "STANDALONE", "NGRAM",
            ),
            "sglang/srt/speculative/eagle_utils.py": (),  # the root is one of the draft tokens
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
        "llama.cpp", "commit 0c1e57098", "2026-11-26",
        {
            "common/arg.cpp": (
                "-m", "-md", "--spec-type", "--spec-draft-n-max", "--spec-draft-p-min", "--spec-ngram-simple-size-m",
                "--spec-synth-rates",
            ),
            "common/speculative.cpp": ("draft-simple", "draft-eagle3", "ngram-simple"),
        },
    ),
    "transformers": EngineSource(
        "Hugging Face transformers", "5.23.0", "2026-11-26",
        {
            "src/transformers/generation/configuration_utils.py": (
                "GenerationConfig", "num_assistant_tokens", "num_assistant_tokens_schedule", "constant",
                "assistant_confidence_threshold", "prompt_lookup_num_tokens", "do_sample", "temperature", "top_p",
                "top_k", "max_new_tokens",
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
