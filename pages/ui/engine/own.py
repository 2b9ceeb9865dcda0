"""A server's own K at its own batch in words: its gain, in the band of published ones, what flips it, its log."""

from collections.abc import Sequence

from decoding.analysis.own_server import LogCheck, OwnPoint
from decoding.analysis.roofline import gain_band, least_first, published_lengths
from decoding.analysis.when_it_pays import BatchRow
from decoding.common.formats import listed, percent, plural
from decoding.trace.engine_metrics import EngineMetrics

ALIKE = 0.03  # gains of other K that are so close are one to a model


def headline(points: Sequence[OwnPoint], modelled: bool = True) -> str:
    """Whether a server's K pays at its batches.

    Args:
        points: by batch. modelled: passes are, too, so that published gains say how far off the gain may be.
    """
    own, where = f"K = {points[0].length}", f"at a batch of {_between([each.batch for each in points], '{}')}"
    gains = [each.gain for each in points]
    said = f"modelled {_between(gains, '{:.2f}x')} plain decoding"
    if not modelled:
        if min(gains) > 1 or max(gains) <= 1:
            return f"{own} {'pays' if min(gains) > 1 else 'does not pay'} {where}: {said}."
        return f"{own} pays at some batches only {where[3:]}: {said}."
    bands = [gain_band(each.batch) for each in points]
    low = min(band.low * gain for band, gain in zip(bands, gains, strict=True))
    high = max(band.high * gain for band, gain in zip(bands, gains, strict=True))
    middles = [band.middle * gain for band, gain in zip(bands, gains, strict=True)]
    measured = (
        f"about {_between(middles, '{:.2f}x')} by the median of gains published for batches nearest to it, "
        f"{low:.2f}x to {high:.2f}x by all of them"
    )
    verdicts = (
        ("pays", low > 1),
        ("does not pay", high <= 1),
        ("is likely to pay", min(middles) > 1),
        ("is unlikely to pay", max(middles) <= 1),
    )
    if found := next((verdict for verdict, holds in verdicts if holds), ""):
        return f"{own} {found} {where}: {said}, {measured}."
    return f"Whether {own} pays {where} is not decided: {said}, {measured}. An A/B decides."


def best_words(rows: Sequence[BatchRow]) -> str:
    """Which K the model likes best at the batches of a server, and which others it cannot tell from it."""
    found: dict[str, list[tuple[int, float]]] = {}  # batches and gains by what is best
    for row in rows:
        best = max(row.gains)
        near = [str(k) for k, gain in enumerate(row.gains, 1) if gain >= best * (1 - ALIKE)]
        alike = f", as good within {ALIKE:.0%}: {listed(near)}" if len(near) > 1 else ""
        said = f"K = {row.gains.index(best) + 1} ({{}}{alike})" if best > 1 else "plain decoding (a draft has {})"
        found.setdefault(said, []).append((row.point.batch, best))
    words = [
        said.format(_between([gain for _, gain in held], "{:.2f}x"))
        + (f" at {_between([batch for batch, _ in held], '{}')}" if len(found) > 1 else "")
        for said, held in found.items()
    ]
    return f"Fastest in the model: {'; '.join(words)}."


def flip_words(points: Sequence[OwnPoint], modelled: bool = True) -> str:
    """Tokens per round and the engine's work per round at which the verdict flips."""
    own = min(points, key=lambda each: each.gain)
    said = f"round takes {own.break_even:.2f} plain steps and commits {own.tokens:.2f} tokens."
    where = f"At {own.batch} a {said}" if len(points) > 1 else f"A {said}"
    if own.engine_flip_s <= 0:
        return f"{where} Not even an engine that adds nothing to a round would make it pay."
    flip = _ms(own.engine_flip_s)
    if not modelled:
        return f"{where} An engine that adds more than {flip} to a round loses that."
    side = "above" if own.gain > 1 else "below"
    verb = "it does not pay" if own.gain > 1 else "it pays"
    return (
        f"{where} The engine's work is taken as {_ms(own.engine_s)} a round: {side} about {flip} {verb} in the model. "
        "Published figures leave 0.75 ms for vLLM at a batch of one in 2025, 2 to 8 ms for SGLang 0.4.4 in larger ones."
    )


def log_headline(check: LogCheck, first: OwnPoint, last: OwnPoint, running_known: bool = False) -> str:
    """What a log says that contradicts the model.

    Args:
        running_known: whether the log has how many sequences ran.
    """
    ends = (first, last)
    said = f"Your log contradicts the model at a batch of {_between([each.batch for each in ends], '{}')}: "
    if check.rounds > max(check.modelled):
        return f"{said}{check.rounds:,.0f} rounds a second, not {_between(check.modelled, '{:,.0f}')}."
    taken = _between([1000 * each.batch / check.rounds for each in ends], "{:.3g}")
    expected = _between([1000 * each.round_s for each in ends], "{:.3g}")
    gains = _between([each.with_engine(check.engine_s(each)) for each in ends], "{:.2f}x")
    return (
        f"{said}{'' if running_known else 'if so many ran, '}a round takes {taken} ms, not {expected} ms. "
        f"If the engine adds the difference, K = {first.length} gives {gains}."
    )


UNCHECKED = "No throughput in what you pasted, so nothing checks the model: paste whole lines, “Running” too."


def check_words(check: LogCheck, first: OwnPoint, last: OwnPoint, running_known: bool = False) -> str:
    """The throughput of the log beside that of the model, and what else may explain a difference.

    Args:
        running_known: whether the log has how many sequences ran.
    """
    running = _between([first.batch, last.batch], "{}")
    said = (
        f"Your log has {check.rounds:,.0f} rounds a second over all sequences ({check.tokens:,.0f} tokens/s); with "
        f"{running} running the model expects {_between(check.modelled, '{:,.0f}')}"
    )
    if check.agrees:
        return f"{said}: they agree."
    sequences = f"about {plural(check.sequences, 'sequence')} ran on average" if check.sequences else ""
    if check.rounds > max(check.modelled):
        return f"{said}. Either {sequences or 'more ran'}, or rounds are faster than modelled."
    tells = "" if running_known else f"Or {sequences or 'fewer ran'}: “Running: N reqs” in the log says it. "
    return (
        f"{said}. {tells}Idle time, prefill or a slower step of the target look alike; with the last, plain decoding "
        "is slower too. An A/B with and without speculation decides."
    )


def is_low(metrics: EngineMetrics) -> bool:
    """Whether fewer first positions are accepted than the published mean lengths of K = 2 leave room for."""
    return bool(metrics.positions) and metrics.positions[0].marginal < least_first()


def acceptance_words(metrics: EngineMetrics) -> str:
    """Whether the acceptance is what others published; empty where nothing was for this K."""
    said, mean, length = [], metrics.value("mean acceptance length"), metrics.draft_length
    published = published_lengths(length) if length else {}
    if published and mean and not metrics.wrong:
        theirs = listed([f"{tokens:.2f} for {what}" for what, tokens in published.items()])
        said.append(f"Published mean acceptance lengths at K = {length}: {theirs}. Yours is {mean:.2f}.")
    if is_low(metrics):
        said.append(
            f"Position 1 is accepted in {percent(metrics.positions[0].marginal)}; published mean lengths of EAGLE "
            f"heads at K = 2 imply {least_first():.0%} or more, and none was found of a draft model. So low a first "
            "position usually means that draft and target do not see the same: another chat template or tokenizer, "
            "weights of another fine-tune or quantisation, sampling at a temperature, or text that the draft does not "
            "know. The acceptance doctor or "
            "“draftscope doctor --target TARGET --draft DRAFT” checks a pair on this machine for each."
        )
    return " ".join(said)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.0995 else f"{1000 * seconds:.3g} ms"


def _between(values: Sequence[float], form: str) -> str:
    """The range of figures, or the one that all of them are."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"
