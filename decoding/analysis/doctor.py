"""The acceptance doctor: what lowers the acceptance of a draft/target pair in practice, check by check.

Each check gives a `Finding`: a verdict, the numbers measured here or the fields of the files that it is made of, and
what to do. What cannot be checked says so and why. Nothing is downloaded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from decoding.analysis import pair_files, pair_readings, pair_weights
from decoding.analysis.pair_files import Finding, ModelFiles, fault, not_checked, read_files, sound
from decoding.analysis.pair_readings import Asked, Reading, continued, read, read_all, readable_tokens
from decoding.common.errors import PairError, PromptError, first_line, is_out_of_memory
from decoding.common.prompts import Prompt
from decoding.engines.base import FORWARD_ERRORS
from decoding.models.checks import check_tokenizers
from decoding.models.loading import out_of_memory
from decoding.models.pair import Pair, load_pair, release
from decoding.models.presets import PairSettings
from decoding.models.vocabulary import Vocabulary
from decoding.sampling.sampling import Sampling

CHECKS = (
    "loading", "chat template", "tokenizers", "vocabulary size", "context", "weights", "quantised or truncated",
    "dtype", "temperature", "text", "loops",
)  # fmt: skip
NEW_TOKENS = 64  # of each prompt: with the prompts that a command takes, about 400 tokens to judge by


@dataclass(frozen=True, eq=False)
class Examined:
    """The files of a pair, the pair where it could be loaded, and the loader's sentence where it could not."""

    target: ModelFiles
    draft: ModelFiles
    pair: Pair | None
    refusal: str


def examine(
    settings: PairSettings, prompts: Sequence[Prompt], sampling: Sampling | None = None, new_tokens: int = NEW_TOKENS
) -> tuple[Finding, ...]:
    """Load a pair from this machine, look at its files and let it read some prompts: one finding for each of `CHECKS`.

    Judged are the temperatures of `sampling`, greedy where it is left out. Raises `OutOfMemoryError` where the pair, or
    a pass over a prompt, does not fit.
    """
    target, draft = (read_files(settings, role) for role in ("target", "draft"))
    pair, refusal = None, target.refusal or draft.refusal
    if not refusal:
        names = (pair_files.local_name(getattr(settings, role), role) for role in ("target", "draft"))
        here, beside = (name or "" for name in names)  # a model without a name of its own was refused above
        try:
            pair = load_pair(replace(settings, target=here, draft=beside))
        except PairError as error:
            refusal = str(error)
    try:
        return findings(Examined(target, draft, pair, refusal), settings.chat, prompts, sampling, new_tokens)
    finally:
        if pair is not None:
            release(pair)


def findings(
    examined: Examined,
    chat: bool,
    prompts: Sequence[Prompt],
    sampling: Sampling | None = None,
    new_tokens: int = NEW_TOKENS,
) -> tuple[Finding, ...]:
    """The same for a pair that is loaded, or was refused."""
    target, draft, pair = examined.target, examined.draft, examined.pair
    sampling = Sampling() if sampling is None else sampling
    encoded, unreadable = encoded_prompts(target, prompts, chat)
    asked = Asked(encoded, new_tokens, sampling, target.known_ids if target.tokenizer is not None else 0)
    readings, why = _readings(pair, asked, unreadable)
    found = {
        "chat template": pair_files.chat_template(target, draft, chat),
        "tokenizers": pair_files.tokenizers(target, draft, [prompt.text for prompt in prompts]),
        "vocabulary size": pair_readings.vocabulary_size(target, draft, readings),
        "context": pair_readings.context(target, draft, encoded, new_tokens, readings),
        "weights": pair_weights.loaded_weights(target, draft, pair),
        "quantised or truncated": pair_weights.stored_weights(target, draft),
    }
    found["loading"] = _loading(examined, found)
    judged = {
        "dtype": lambda pair, readings: pair_readings.dtype(pair, asked, readings),
        "temperature": lambda pair, readings: pair_readings.temperature(readings, sampling),
        "text": lambda pair, readings: pair_readings.text(readings),
        "loops": lambda pair, readings: pair_readings.loops(readings),
    }
    broken = _broken(examined, found)
    for check, judge in judged.items():
        if pair is None or readings is None:
            found[check] = not_checked(why)
        elif broken and check != "dtype":
            found[check] = not_checked(f"the models are not as they were trained: see {broken}")
        else:
            found[check] = judge(pair, readings)
    # The template that both share, where the prompts are plain.
    shared = (
        found["chat template"].verdict == "sound" and target.tokenizer is not None and target.tokenizer.chat_template
    )
    if pair is not None and readings and not chat and not broken and shared:
        found["chat template"] = _with_template(pair, asked, prompts, readings, found["chat template"])
    return tuple(replace(found[check], check=check) for check in CHECKS)


def encoded_prompts(
    target: ModelFiles, prompts: Sequence[Prompt], chat: bool
) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], str]:
    """Names and ids of the prompts as the target is given them, and why there are none."""
    if target.tokenizer is None:
        return (), "the target's tokenizer cannot be read"
    try:
        vocabulary = Vocabulary(target.tokenizer, target.vocab_size or target.known_ids, chat=chat)
        ids = [(prompt.title, tuple(vocabulary.encode_prompt(prompt.text))) for prompt in prompts]
    except (PromptError, PairError) as error:
        return (), str(error).rstrip(".")
    return tuple(ids), ""


def _readings(pair: Pair | None, asked: Asked, unreadable: str) -> tuple[tuple[Reading, ...] | None, str]:
    """What the models made of the prompts, or why that is not known."""
    if pair is None:
        return None, "the pair is not loaded"
    if unreadable:
        return None, unreadable
    try:
        readings = read_all(pair, asked)
    except FORWARD_ERRORS as error:
        if is_out_of_memory(error):
            raise out_of_memory(pair.info.name, pair.target.device.type, error) from None
        return None, f"a pass over a prompt fails ({first_line(error)})"
    return (readings, "") if readings else (None, "no prompt has more than one token")


def _loading(examined: Examined, found: dict[str, Finding]) -> Finding:
    """Whether the pair can be loaded; a refusal that another check explains is that check's."""
    pair, refusal = examined.pair, examined.refusal
    if pair is not None:
        return sound(f"{pair.info.name}: both load, take a tree attention mask, and hold {pair.context:,} tokens")
    elsewhere = next((name for name in found if _explains(examined, name, found[name])), None)
    if elsewhere is not None:
        return not_checked(f"the pair is refused for what {elsewhere} says: {refusal}")
    return fault(refusal, "Do what the sentence says; the checks that need the models come after it.")


def _explains(examined: Examined, check: str, finding: Finding) -> bool:
    """Whether a fault that was found in the files is the one that the loader refuses the pair for."""
    if finding.verdict != "fault":
        return False
    target, draft, refusal = examined.target, examined.draft, examined.refusal
    if check == "weights":
        return any(files.missing and files.missing[0] in refusal for files in (target, draft))
    if check == "chat template":
        return "has no chat template" in refusal
    if check == "quantised or truncated":
        return "quantised weights" in refusal
    if check == "tokenizers" and target.source is not None and draft.source is not None:
        try:
            check_tokenizers(target.tokenizer, draft.tokenizer, target.source.name, draft.source.name)
        except PairError as error:
            return str(error) == refusal
    return False


def _broken(examined: Examined, found: dict[str, Finding]) -> str:
    """The check that found parts of a model missing or dead, so that figures of it mean nothing; empty if none did."""
    if found["weights"].verdict == "fault":
        return "weights"
    left_out = examined.target.left_out or examined.draft.left_out
    return "quantised or truncated" if left_out else ""


def _with_template(
    pair: Pair, asked: Asked, prompts: Sequence[Prompt], plain: Sequence[Reading], found: Finding
) -> Finding:
    """The chat template's check with the agreement that the template gives, where the prompts are plain."""
    plainly = pair.vocabulary
    vocabulary = Vocabulary(plainly.tokenizer, plainly.size, tuple(plainly.stop_ids), chat=True)
    room = readable_tokens(pair)
    texts = {prompt.title: prompt.text for prompt in prompts}
    templated = []
    try:
        for reading in plain:
            ids = vocabulary.encode_chat(texts[reading.name])
            if len(ids) + asked.new_tokens > room:
                return replace(found, evidence=f"{found.evidence}; with the template the prompts do not fit")
            whole = continued(pair, ids, asked.new_tokens, vocabulary.stop_ids)
            templated.append(read(pair, reading.name, whole, len(ids), asked))
    except PromptError as error:
        return replace(found, evidence=f"{found.evidence}; {str(error).rstrip('.')}")
    return pair_readings.template_gain(plain, templated, found)
