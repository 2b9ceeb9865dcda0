"""Every decoder that transformers knows, as a tiny random pair: right by `generate`, or refused in a sentence.

Each is written to disk with its draft (the target with noise), loaded as a user's would be, and decoded greedily by
`TRIED` from a short and a long prompt to the last position of its context, which is the width of its windows too.
The reference is the target as transformers loads it, with its own masks: what loading a pair changes is tried as well.
Exit code 1 if any pair is loaded and then differs from `generate` or fails.
"""

import json
import re
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from benchmarks.markdown import table, write_page
from benchmarks.tiny_checkpoints import CONTEXT, LAYERS, VARIANTS, causal_types, tiny_config, write_pair
from decoding.common.errors import PairError, run_main
from decoding.common.files import ROOT
from decoding.compare.identity import MarginJudge, explain_difference
from decoding.experiments.command import arguments, choose_prompts, print_table, save_figures
from decoding.experiments.experiment import RESULTS
from decoding.methods.methods import METHODS
from decoding.models.checks import check_config
from decoding.models.pair import Loaded, Pair, PairSettings, load_pair, release
from decoding.session.session import DecodeSession, Limits

TRIED = ("autoregressive", "linear", "dynatree", "dyspec", "eagle2")
# Tokens that follow the prompts: of one from the beginning, of another that leaves no more in the context.
FEW, LAST = (5, 8), 12
STORED, TABLE = RESULTS / "architectures-cpu.json", ROOT / "docs" / "model-types.md"
OUTCOMES = {
    "right": "Right",
    "refused": "Refused, and why",
    "not built": "Not built tiny, and why",
    "wrong": "Another text than `generate`",
    "crash": "Fails",
}
QUICK = ("gpt2", "gpt_neo", "llama", "deepseek_v3", "gemma3_text", "bloom", "mamba")


@dataclass(frozen=True)
class Trial:
    """What became of one architecture.

    Attributes:
        name: model type, with what was changed of its tiny configuration.
        outcome: `right`, `refused`, `not built`, `wrong` (another text than `generate`) or `crash`.
        reason: the sentence, of all but `right`.
        near_ties: outputs that part from `generate` where the target's two best logits lie within 1e-4.
        tokens_per_iteration: of all methods but the first, None where nothing was decoded.
    """

    name: str
    outcome: str
    reason: str = ""
    near_ties: int = 0
    tokens_per_iteration: float | None = None


def try_architecture(name: str, model_type: str, context: int, changes: dict, text: str) -> Trial:
    """Write, load and decode one pair."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            target, draft = write_pair(Path(folder), model_type, **changes)
        except Exception as error:  # noqa: BLE001 - whatever a family's configuration or first forward objects to
            refusal = _config_refusal(model_type, changes)
            return Trial(name, "refused" if refusal else "not built", refusal or _sentence(error))
        try:
            pair = load_pair(PairSettings(str(target), str(draft), device="cpu", context_length=context))
        except PairError as error:
            return Trial(name, "refused", re.sub(rf"{folder}/(target|draft)", r"The \1", str(error)))
        except Exception as error:  # noqa: BLE001 - a traceback while loading is what this looks for
            return Trial(name, "crash", f"while it is loaded: {_sentence(error)}")
        try:
            alone = AutoModelForCausalLM.from_pretrained(target, attn_implementation="eager", dtype=torch.float32)
            alone.generation_config = GenerationConfig()
            return Trial(name, *_decode(pair, alone.eval().requires_grad_(False), text))
        except Exception as error:  # noqa: BLE001 - the same while decoding
            return Trial(name, "crash", f"while it decodes: {_sentence(error)}")
        finally:
            release(pair)


def _decode(pair: Pair, alone: Any, text: str) -> tuple[str, str, int, float]:
    """Outcome, reason, near ties and tokens per iteration of all methods and prompts.

    Args:
        alone: the target as transformers loads it, which says what is right and what is a near tie.
    """
    near_ties = tokens = iterations = 0
    judge = MarginJudge(replace(pair.target, _loaded=Loaded(alone)))
    for count, room in (FEW, (pair.context - LAST, LAST)):
        ids = pair.vocabulary.encode(text)[:count]
        settings = GenerationConfig(do_sample=False, max_new_tokens=room, eos_token_id=None, pad_token_id=0)
        with torch.inference_mode():
            rows = torch.tensor([ids])
            written = alone.generate(rows, attention_mask=torch.ones_like(rows), generation_config=settings)
        reference = tuple(written[0, len(ids) :].tolist())
        for name in TRIED:
            limits = Limits(room, ignore_end_of_text=True, record="summary")
            session = DecodeSession(pair, METHODS[name], ids, limits=limits)
            steps = list(session)
            difference = explain_difference(pair, ids, tuple(session.tokens[count:]), reference, judge)
            if difference is not None and not difference.near_tie:
                return "wrong", f"{name}, {count} prompt tokens: {difference.explanation}", near_ties, 0.0
            near_ties += difference is not None
            if name != "autoregressive":
                tokens, iterations = tokens + session.new_tokens, iterations + len(steps)
    return "right", "", near_ties, tokens / iterations


def _config_refusal(model_type: str, changes: dict) -> str | None:
    """Why the configuration alone is refused, as loading does before it reads weights; None if it is not."""
    try:
        check_config(tiny_config(model_type, 4096, **changes), "The target")
    except PairError as error:
        return str(error)
    except Exception:  # noqa: BLE001 - the caller says why it cannot be built
        return None
    return None


def _sentence(error: Exception) -> str:
    first = " ".join(str(error).split())[:200] or "no message"
    return f"{type(error).__name__}: {first}"


def cases(types: Sequence[str]) -> list[tuple[str, str, int, dict]]:
    """Name, model type, context and changes of what to try; all where no types are given."""
    everything = [(kind, kind, CONTEXT, {}) for kind in causal_types()]
    everything += [(f"{kind}, {what}", kind, context, changes) for kind, what, context, changes in VARIANTS]
    return [case for case in everything if not types or case[1] in types]


def stored() -> dict:
    """The stored run; without trials where there is none."""
    return json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {"trials": []}


def document(record: dict) -> str:
    """The table for `docs`, of a stored run."""
    trials = [Trial(**trial) for trial in record["trials"]]
    parts = [
        "# Which model types work",
        "Written by `python -m benchmarks.architectures --save` with transformers "
        f"{record['hardware']['transformers']} and torch {record['hardware']['torch']}: every model type that "
        f"`AutoModelForCausalLM` knows, as a tiny random target with {LAYERS} layers and a draft that is the target "
        "with noise, in float32 on a CPU. *Right*: "
        f"{len(TRIED)} methods ({', '.join(TRIED)}) write what `generate(do_sample=False)` writes, from a short prompt "
        f"and up to the end of the context of {CONTEXT} tokens, which is as long as every sliding window. *Near "
        "ties*: places where rounding decides between the two best logits.",
    ]
    counts = Counter(trial.outcome for trial in trials)
    parts.append(", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome]) + ".")
    for outcome, heading in OUTCOMES.items():
        chosen = [trial for trial in trials if trial.outcome == outcome]
        if chosen:
            parts += [f"## {heading}", _table(chosen, outcome == "right")]
    return "\n\n".join(parts) + "\n"


def _table(trials: Sequence[Trial], right: bool) -> str:
    last = ("tokens per iteration", "near ties") if right else ("reason",)
    rows = []
    for trial in trials:
        found = (f"{trial.tokens_per_iteration:.2f}", str(trial.near_ties)) if right else (trial.reason,)
        model_class = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(trial.name.split(",")[0])
        rows.append((f"`{trial.name}`", f"`{model_class}`", *found))
    return table(("model type", "class", *last), rows)


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    only = "model types to try, all without it; with --save what is stored of the others stays"
    parser.add_argument("--only", nargs="+", default=[], metavar="TYPE", help=only)
    args = parser.parse_args()
    text = choose_prompts(args.prompts, 1)[0].text
    started, trials = time.perf_counter(), []
    warnings.simplefilter("ignore")
    try:
        for case in cases(args.only or (QUICK if args.quick else ())):
            trials.append(try_architecture(*case, text))
            print(f"{trials[-1].name}: {trials[-1].outcome}. {trials[-1].reason}", flush=True)
    except KeyboardInterrupt:
        print("stopped; what was tried counts")
    counts = Counter(trial.outcome for trial in trials)
    print_table(("outcome", "architectures"), sorted(counts.items()))
    print(f"{len(trials)} tried in {time.perf_counter() - started:.0f} s with transformers {transformers.__version__}")
    kept = {trial["name"]: trial for trial in stored()["trials"]} if args.save and args.only else {}
    kept |= {trial.name: asdict(trial) for trial in trials}
    figures = {"trials": [kept[name] for name, *_ in cases(()) if name in kept]}
    save_figures(args, "architectures", figures, torch.device("cpu"))
    if args.save:
        write_page(TABLE, document(stored()))
    return 1 if counts["wrong"] or counts["crash"] else 0


if __name__ == "__main__":
    run_main(main)
