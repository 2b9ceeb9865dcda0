"""What a draft/target pair does on some prompts, and the checks of its acceptance that are made of it.

The target continues each prompt greedily; then one plain pass of each model over prompt and continuation gives both
distributions at every token. Nothing is drafted: what a drafter or a verifier adds is not in these figures.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from decoding.analysis.pair_files import Finding, ModelFiles, fault, not_checked, sound
from decoding.models.loading import free_bytes
from decoding.models.pair import Pair, match_vocabulary
from decoding.models.presets import DTYPE_BYTES, cpu_computes_bfloat16
from decoding.sampling.sampling import Sampling, target_distribution
from decoding.trace.metrics import tokens_before_loop

# Tokens of the target's own text. Of fewer, an agreement of one half has a 95% interval of more than 0.14 either way.
FEWEST_TOKENS = 50
# Tokens of one prompt, of which the mean loss of each token still weighs less than a sixteenth.
FEWEST_PROMPT_TOKENS = 16
# Nats per token by which the draft's loss exceeds the target's. Where a text is as the target would write it, that is
# their divergence, and a share of exp(-divergence) / 2 of drawn tokens is certain to be accepted (Bretagnolle and
# Huber): 0.07 at 2 nats, 0.18 at 1. The embedded pair has 0.4 to 1.7 on the prompts that come with the program.
FAR_NATS = 2.0
# Acceptance below the agreement of greedy decoding: a chain of four gives 1.9 tokens per pass at 0.5 and 2.3 at 0.6, a
# sixth less.
TEMPERATURE_LOSS = 0.1
# Agreement that the chat template adds, for the same reason; the prompts' 95% interval must lie above 0 besides.
TEMPLATE_GAIN = 0.1
# Agreement that is due to loops alone: two standard errors of an agreement of one half over 400 tokens.
LOOP_GAIN = 0.05
# Of the probability that an id has on average where nothing was learned, 1 / vocabulary. Training takes ids that no
# text has far below that; a row that was never trained stays near it.
PADDING_SHARE = 0.1
# Share of positions where the dtype changes the likeliest token. No more acceptance than that is lost to rounding; two
# standard errors of an agreement over 400 tokens are as much.
ROUNDING_LOSS = 0.05
FLOAT32_MEMORY_SHARE = 0.5  # of the free memory, for a copy of both models
Z95 = 1.96


@dataclass(frozen=True)
class Asked:
    """What is to be read, and how."""

    prompts: tuple[tuple[str, tuple[int, ...]], ...]  # names and token ids
    new_tokens: int  # of the target's continuation
    sampling: Sampling
    known_ids: int  # one more than the largest id of the tokenizer


@dataclass(frozen=True, eq=False)
class Reading:
    """What both models made of one prompt and the target's greedy continuation of it."""

    name: str
    # ids, prompt_tokens: all tokens, and how many of them are the prompt's
    ids: tuple[int, ...]
    prompt_tokens: int
    # target_nats, draft_nats: cross-entropy of the prompt `[prompt_tokens - 1]`
    target_nats: np.ndarray
    draft_nats: np.ndarray
    # target_best, draft_best: likeliest next token `[tokens - 1]`
    target_best: np.ndarray
    draft_best: np.ndarray
    # overlap, overlap_matched: 1 - total variation of both distributions before each token of the continuation
    # `[new_tokens]`: at the temperatures asked for, and with the draft at the target's
    overlap: np.ndarray
    overlap_matched: np.ndarray
    # target_padding, draft_padding: mean probability of all ids past the tokenizer's
    target_padding: float
    draft_padding: float
    not_finite: float  # logits of either model that are nan or infinite, as a share

    @property
    def output_ids(self) -> tuple[int, ...]:
        """The continuation."""
        return self.ids[self.prompt_tokens :]

    @property
    def agrees(self) -> np.ndarray:
        """Whether both models have the same likeliest next token `[tokens - 1]`."""
        return self.target_best == self.draft_best

    @property
    def output_agrees(self) -> np.ndarray:
        """The same before each token of the continuation."""
        return self.agrees[self.prompt_tokens - 1 :]


def readable_tokens(pair: Pair) -> int:
    """Most tokens that both networks can be given: rotary positions go on past the trained context, tables do not."""
    tables = [
        model.info.context
        for model in (pair.target, pair.draft)
        if not getattr(model.network.config.get_text_config(), "rope_parameters", None)
    ]
    return min([pair.settings.context_length, *tables])


def read_all(pair: Pair, asked: Asked) -> tuple[Reading, ...]:
    """Both models on all prompts; a prompt that leaves no room for its continuation is cut at its end."""
    room = readable_tokens(pair)
    new_tokens = min(asked.new_tokens, room // 2)
    return tuple(
        read(pair, name, continued(pair, ids[: room - new_tokens], new_tokens), len(ids[: room - new_tokens]), asked)
        for name, ids in asked.prompts
        if len(ids) > 1
    )


@torch.inference_mode()
def continued(pair: Pair, ids: Sequence[int], new_tokens: int, stops: frozenset[int] | None = None) -> tuple[int, ...]:
    """A prompt and the target's greedy tokens after it, up to the end of the text."""
    tokens = torch.tensor([list(ids)], device=pair.target.device)
    changes: dict[str, Any] = {"max_new_tokens": new_tokens}
    if stops is not None:
        changes["eos_token_id"] = sorted(stops) or None
    config = pair.generation_config(**changes)
    found = pair.target.network.generate(tokens, attention_mask=torch.ones_like(tokens), generation_config=config)
    return tuple(found[0].tolist())


@torch.inference_mode()
def read(pair: Pair, name: str, ids: tuple[int, ...], prompt_tokens: int, asked: Asked) -> Reading:
    """Both models on one text."""
    tokens = torch.tensor([ids], device=pair.target.device)
    target = _logits(pair.target.network, tokens)
    raw = _logits(pair.draft.network, tokens.to(pair.draft.device)).to(target.device)
    draft = match_vocabulary(raw, target.shape[-1])
    behind, labels = prompt_tokens - 1, tokens[0, 1:prompt_tokens, None]
    nats = [-each[:behind].log_softmax(-1).gather(-1, labels)[:, 0] for each in (target, draft)]
    probs, sampling = target_distribution(target[behind:], asked.sampling), asked.sampling
    if sampling.greedy:  # the draft as it is, and the target at temperature 1, which greedy decoding has none of
        probs = target[behind:].softmax(-1)
    scales = (sampling.draft_temperature, sampling.temperature or 1.0)
    overlaps = [torch.minimum(probs, (draft[behind:] / scale).softmax(-1)).sum(-1) for scale in scales]
    bad = [~each.isfinite() for each in (target, raw)]
    return Reading(
        name=name,
        ids=ids,
        prompt_tokens=prompt_tokens,
        target_nats=_array(nats[0]),
        draft_nats=_array(nats[1]),
        target_best=target.argmax(-1).cpu().numpy(),
        draft_best=draft.argmax(-1).cpu().numpy(),
        overlap=_array(overlaps[0]),
        overlap_matched=_array(overlaps[1]),
        target_padding=float(target.softmax(-1)[:, asked.known_ids :].sum(-1).mean()),
        draft_padding=float(raw.softmax(-1)[:, asked.known_ids :].sum(-1).mean()),
        not_finite=max(float(each.float().mean()) for each in bad),
    )


def _logits(network: Any, tokens: Tensor) -> Tensor:
    """Logits before each token but the first in float32, `[tokens - 1, vocab_size]`."""
    return network(input_ids=tokens).logits[0, :-1].float()


def _array(values: Tensor) -> np.ndarray:
    return values.cpu().numpy().astype(np.float64)


def _joined(parts: Iterator[np.ndarray]) -> np.ndarray:
    return np.concatenate([*parts, np.zeros(0)])


# ---- The checks.


def too_few(readings: Sequence[Reading]) -> str:
    """Why the continuations are too short to judge by, empty where they are not."""
    if (count := sum(len(reading.output_ids) for reading in readings)) >= FEWEST_TOKENS:
        return ""
    return f"the target wrote {count} tokens, and {FEWEST_TOKENS} are needed: give more prompts"


def vocabulary_size(target: ModelFiles, draft: ModelFiles, readings: Sequence[Reading] | None) -> Finding:
    """Whether both have a logit for the same ids, and what ids past the tokenizer's take of the probability."""
    target_size, draft_size = target.vocab_size, draft.vocab_size
    if target_size is None or draft_size is None or target.tokenizer is None:
        return not_checked("the size of a vocabulary cannot be read")
    known, sizes = target.known_ids, {"target": target_size, "draft": draft_size}
    said = f"{target_size:,} ids in the target, {draft_size:,} in the draft, {known:,} in the tokenizer"
    for role, size in sizes.items():
        if size < known:
            return fault(
                f"{said}: {known - size:,} tokens have no logit in the {role}, and none of them is ever accepted",
                f"Choose a {role} that was trained with the whole tokenizer.",
            )
    if target_size == draft_size:
        return sound(said)
    does = "logits of the draft are cut" if target_size < draft_size else "logits of the draft are filled with -inf"
    said = f"{said}; the {does} to the target's size"
    if readings is None:
        return not_checked(f"{said}; what padded ids take of the probability was not measured")
    for role, size in sizes.items():
        padded = size - known
        if not padded:
            continue
        taken = float(np.mean([getattr(reading, f"{role}_padding") for reading in readings]))
        said += f"; {padded:,} padded ids of the {role} have a probability of {taken:.2g}"
        if taken / padded > PADDING_SHARE / size:
            return fault(
                f"{said}, as rows that were never trained",
                f"Cut the embedding and the output head of the {role} to {known:,} rows, and its vocab_size as well.",
            )
    return sound(said)


def context(
    target: ModelFiles,
    draft: ModelFiles,
    prompts: Sequence[tuple[str, tuple[int, ...]]],
    new_tokens: int,
    readings: Sequence[Reading] | None,
) -> Finding:
    """Whether prompt and new tokens stay within the context that both were trained on, and what lies past it."""
    limits = {files.role: files.positions for files in (target, draft)}
    known = {role: limit for role, limit in limits.items() if limit is not None}
    if not prompts:
        return not_checked("no prompt could be encoded")
    if not known:
        return not_checked("no configuration says how many positions its model was trained on")
    name, ids = max(prompts, key=lambda prompt: len(prompt[1]))
    needed, limit = len(ids) + new_tokens, min(known.values())
    said = f"{len(ids):,} tokens of {name} and {new_tokens:,} new ones are {needed:,}; " + ", ".join(
        f"the {role} was trained on {'an unknown number' if limit is None else f'{limit:,}'}"
        for role, limit in limits.items()
    )
    if needed <= limit:
        return sound(said)
    shorter = " and ".join(role for role, reached in known.items() if reached == limit)
    return fault(
        f"{said}; {_past(readings, limit)}",
        f"Keep prompt and new tokens within {limit:,}, or choose a {shorter} that was trained on longer texts.",
    )


def _past(readings: Sequence[Reading] | None, limit: int) -> str:
    """Agreement within a context and past it, in a clause."""
    if readings is None:
        return "agreement past that was not measured, because the models do not run"
    within = _joined(reading.agrees[:limit] for reading in readings)
    past = _joined(reading.agrees[limit:] for reading in readings)
    if not len(past):
        return "agreement past that was not measured, because no text that the models can be given is that long"
    return (
        f"the likeliest tokens agree at {within.mean():.2f} of {len(within):,} positions within {limit:,} and at "
        f"{past.mean():.2f} of {len(past):,} past it"
    )


def dtype(pair: Pair, asked: Asked, readings: Sequence[Reading]) -> Finding:
    """Whether the dtype in use overflows, changes the likeliest tokens, or has no fast arithmetic on this device."""
    name, device = pair.target.info.dtype, pair.target.device.type
    said = f"both compute in {name} on {device}"
    worst = max(reading.not_finite for reading in readings)
    if worst > 0:
        return fault(
            f"{said}; up to {worst:.2g} of the logits of a prompt are nan or infinite",
            "Choose float32 or bfloat16: values leave the range of this dtype.",
        )
    if name == "float32":
        return sound(f"{said}; all logits are finite")
    changed = _changed_tokens(pair, readings)
    said += (
        "; what float32 would change was not measured, because a copy of the models does not fit"
        if changed is None
        else f"; it changes the likeliest token at {changed:.3f} of the positions, against float32"
    )
    if device == "cpu" and not (name == "bfloat16" and cpu_computes_bfloat16()):
        return fault(
            f"{said}; this processor has no instructions for {name}",
            "Choose float32: here the shorter dtype rounds more and is not faster.",
        )
    if changed is not None and changed > ROUNDING_LOSS:
        return fault(said, "Choose float32 or another 16-bit dtype.")
    return Finding("sound" if changed is not None else "not checked", said)


@torch.inference_mode()
def _changed_tokens(pair: Pair, readings: Sequence[Reading]) -> float | None:
    """Share of positions where the likeliest token of either model is not that of float32; None without room for it."""
    models = (pair.target, pair.draft)
    needed = DTYPE_BYTES["float32"] * sum(model.info.parameters for model in models)
    free = free_bytes(pair.target.device.type)
    if free is None or needed > FLOAT32_MEMORY_SHARE * free or any(_is_placed(model.network) for model in models):
        return None
    changed = [np.zeros(len(reading.ids) - 1, dtype=bool) for reading in readings]
    for model, role in zip(models, ("target", "draft"), strict=True):
        wide = copy.deepcopy(model.network).float()
        for reading, differs in zip(readings, changed, strict=True):
            logits = _logits(wide, torch.tensor([reading.ids], device=model.device))
            best = match_vocabulary(logits, pair.logits_size).argmax(-1).cpu().numpy()
            differs |= best != getattr(reading, f"{role}_best")
        del wide
    return float(np.concatenate(changed).mean())


def _is_placed(network: nn.Module) -> bool:
    """Whether layers lie on several devices, or off them."""
    return len(set(getattr(network, "hf_device_map", None) or ())) > 1


def temperature(readings: Sequence[Reading], sampling: Sampling) -> Finding:
    """Acceptance of one drafted token at the temperatures asked for against the agreement of greedy decoding."""
    if why := too_few(readings):
        return not_checked(why)
    greedy = float(_joined(reading.output_agrees for reading in readings).mean())
    asked, matched = (
        float(_joined(getattr(reading, name) for reading in readings).mean()) for name in ("overlap", "overlap_matched")
    )
    count = sum(len(reading.output_ids) for reading in readings)
    draft = sampling.draft_temperature
    if sampling.greedy:
        return sound(
            f"greedy, over {count:,} tokens of the target's own text: the likeliest tokens agree at {greedy:.2f} of "
            f"them; with the target at 1 and the draft at {draft:g}, {asked:.2f} of drawn tokens would be accepted"
        )
    said = (
        f"over {count:,} tokens of the target's own text, {asked:.2f} of tokens drawn from the draft at {draft:g} are "
        f"accepted with the target at {sampling.temperature:g}; {matched:.2f} with both at {sampling.temperature:g}; "
        f"greedy agreement is {greedy:.2f}"
    )
    if asked >= greedy - TEMPERATURE_LOSS:
        return sound(said)
    better = f"Set the draft temperature to {sampling.temperature:g} as well."
    return fault(said, better if matched > asked else "Lower the temperature.")


def text(readings: Sequence[Reading]) -> Finding:
    """Whether a prompt is much harder for the draft than for the target: unlike what the draft was trained on."""
    long = [reading for reading in readings if np.isfinite(reading.draft_nats).sum() >= FEWEST_PROMPT_TOKENS]
    if not long:
        return not_checked(f"no prompt has more than {FEWEST_PROMPT_TOKENS} tokens: give longer ones")
    losses = {reading.name: _mean_nats(reading) for reading in long}
    gaps = {name: float(draft - target) for name, (draft, target) in losses.items()}
    far = sorted((name for name in gaps if gaps[name] > FAR_NATS), key=lambda name: -gaps[name])
    shown = far or [max(gaps, key=lambda name: gaps[name])]
    listed = "; ".join(f"{name} {losses[name][0]:.2f} against {losses[name][1]:.2f}" for name in shown)
    said = f"nats per token of the draft against the target's: {listed}"
    if far:
        return fault(
            f"{said}; {len(far)} of {len(long)} prompts are more than {FAR_NATS:g} nats harder for the draft",
            "Use a draft that was trained on such text, or one that copies from the prompt (prompt lookup).",
        )
    return sound(f"{said} is the widest of {len(long)} prompts")


def _mean_nats(reading: Reading) -> tuple[float, float]:
    """Loss of draft and target over the tokens that the draft has a logit for: others are none of the text's doing."""
    known = np.isfinite(reading.draft_nats)
    return float(reading.draft_nats[known].mean()), float(reading.target_nats[known].mean())


def loops(readings: Sequence[Reading]) -> Finding:
    """Whether the target repeats itself, and what the agreement is without that."""
    if why := too_few(readings):
        return not_checked(why)
    before = [tokens_before_loop(reading.output_ids) for reading in readings]
    looping = [reading for reading, free in zip(readings, before, strict=True) if free < len(reading.output_ids)]
    whole = _joined(reading.output_agrees for reading in readings)
    free = _joined(reading.output_agrees[:count] for reading, count in zip(readings, before, strict=True))
    said = f"{len(looping)} of {len(readings)} greedy texts fall into a loop, with {len(whole) - len(free):,} of "
    said += f"{len(whole):,} tokens; the likeliest tokens agree at {whole.mean():.2f} of all"
    if not len(free):
        return not_checked(f"{said}; no token lies before a loop")
    said += f" and at {free.mean():.2f} of those before it"
    if whole.mean() - free.mean() > LOOP_GAIN:
        return fault(said, "Judge by the tokens before the loop, or give prompts that the target does not loop on.")
    return sound(said)


def template_gain(plain: Sequence[Reading], templated: Sequence[Reading], found: Finding) -> Finding:
    """What the chat template would add to the agreement, for a pair that has one and is given plain text."""
    if why := too_few(templated) or too_few(plain):
        return Finding(found.verdict, f"{found.evidence}; what the template changes: {why}")
    pairs = [
        (before.output_agrees.mean(), after.output_agrees.mean())
        for before, after in zip(plain, templated, strict=True)
        if len(before.output_ids) and len(after.output_ids)
    ]
    before, after = np.array(pairs).T
    gain = after - before
    said = f"{found.evidence}; the likeliest tokens agree at {before.mean():.2f} so, at {after.mean():.2f} through it"
    half = Z95 * gain.std(ddof=1) / len(gain) ** 0.5 if len(gain) > 1 else np.inf
    if gain.mean() > TEMPLATE_GAIN and gain.mean() > half:
        return fault(said, "Put the prompts through the chat template: turn chat on.")
    return Finding(found.verdict, said)
