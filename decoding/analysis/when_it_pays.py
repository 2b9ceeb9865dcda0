"""Up to which batch speculation pays by modelled costs, why it stops to, and the table of it. Torch-free.

A round drafts K tokens, verifies them with the target in one pass, and takes what the engine adds.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from decoding.analysis.batch import MOST_DEPTH, BatchPoint, Rates, best_choice, chain_gains, crossings, speed_by_batch
from decoding.analysis.model_shape import ModelShape
from decoding.analysis.own_server import OwnPoint, own_point
from decoding.analysis.roofline import BATCHES, Setup, most_sequences, pass_time, roofline_costs
from decoding.common.cost_model import CostModel
from decoding.common.errors import require

MODELLED, MEASURED = "modelled", "modelled from measured passes"


@dataclass(frozen=True)
class BatchRow:
    """One batch size of the answer."""

    point: BatchPoint
    # plain_s, round_s: a step of plain decoding, and a round of the best chain
    plain_s: float
    round_s: float
    # What the target's pass waits for most that verifies the faster of chain and tree; empty where passes were measured
    limit: str
    gains: tuple[float, ...]  # over plain decoding, of chains of 1, 2, ... tokens.
    own: OwnPoint | None = None  # the K that a server runs; None where none was given


@dataclass(frozen=True)
class Answer:
    """The table, the batches at which the best chain and the best tree break even, and the sentence."""

    rows: tuple[BatchRow, ...]
    chain_ends: tuple[float, ...]
    tree_ends: tuple[float, ...]
    sentence: str
    source: str = MODELLED  # what the seconds come from: `modelled`, or `modelled from measured passes`
    # The largest batch that memory has room for, where that is below the largest asked for; else None
    most: int | None = None

    @property
    def has_trees(self) -> bool:
        """Whether acceptance by rank is known."""
        return self.rows[0].point.tree is not None


def answer(
    target: ModelShape,
    draft: ModelShape | None,
    setup: Setup,
    acceptance: Rates,
    batches: tuple[int, ...] = BATCHES,
    length: int | None = None,
) -> Answer:
    """All of it; `draft` None is lookup in the text, which costs nothing, and `length` is the K that a server runs.

    Raises `SettingsError` where memory has no room for the models, or for none of the batches.
    """
    most = most_sequences(target, draft, setup)
    require(
        most >= min(batches),
        f"Memory has room for {most:,} sequences of {setup.context:,} tokens: choose a smaller batch, a shorter "
        "context, or more devices.",
    )
    asked, longest = {min(batch, most) for batch in batches}, max(MOST_DEPTH, length or 0)
    costs = {batch: roofline_costs(target, draft, setup, batch) for batch in asked}
    points = speed_by_batch(costs, acceptance, longest)
    rows = []
    for point in points:
        shape, batch = best_choice(point).shape, point.batch
        plain, verified = (pass_time(target, setup, batch, tokens) for tokens in (1, shape.nodes + 1))
        own = own_point(costs[batch], acceptance, length, setup.engine_s(batch)) if length else None
        gains, round_s = chain_gains(costs[batch], acceptance, longest), point.chain.shape.seconds(costs[batch])
        rows.append(BatchRow(point, plain.seconds, round_s, verified.limit, gains, own))
    waits = pass_time(target, setup, points[-1].batch, 1).limit
    said = verdict(
        points, lambda point: _cause(point, target, draft, setup), f"; plain decoding there is limited by {waits}"
    )
    if most < max(batches):
        said = f"{said} Memory has room for {most:,} sequences of {setup.context:,} tokens."
    ends = crossings(points, "chain"), crossings(points, "tree")
    return Answer(tuple(rows), *ends, f"Modelled: {said}", most=most if most < max(batches) else None)


def measured_answer(costs: Mapping[int, CostModel], acceptance: Rates, length: int | None = None) -> Answer:
    """The same from passes that were measured, by batch size."""
    longest = max(MOST_DEPTH, length or 0)
    points = speed_by_batch(costs, acceptance, longest)
    rows = []
    for point in points:
        one = costs[point.batch]
        own = own_point(one, acceptance, length) if length else None
        plain_s, gains = one.plain_iteration_s, chain_gains(one, acceptance, longest)
        rows.append(BatchRow(point, plain_s, point.chain.shape.seconds(one), "", gains, own))
    said = verdict(points, lambda point: _measured_cause(point, costs[point.batch]))
    ends = crossings(points, "chain"), crossings(points, "tree")
    return Answer(tuple(rows), *ends, f"Modelled from measured passes: {said}", MEASURED)


def compute_bound_from(model: ModelShape, setup: Setup) -> int | None:
    """Tokens per pass from which the layers' weights wait for compute; None where not even 2^20 make them."""
    most = 2**20

    def waits_for_compute(tokens: int) -> bool:
        return pass_time(model, setup, tokens, 1).parts[0].limit == "compute"

    found = bisect_left(range(most), True, lo=1, key=waits_for_compute)
    return found if found < most else None


def verdict(points: tuple[BatchPoint, ...], cause: Callable[[BatchPoint], str], rest: str = "") -> str:
    """At which batches speculation pays, and the `cause` why it does not at the others, or the `rest` where it always
    does.
    """
    better = tuple(replace(each, chain=best_choice(each)) for each in points)
    first, last = better[0], better[-1]
    losing = [each for each in better if each.chain.speedup <= 1]
    if not losing:
        return f"speculate at every batch up to {last.batch}, where it still gives {last.chain.speedup:.2f}x{rest}."
    why = cause(losing[0])
    if len(losing) == len(better):
        return f"do not speculate, at no batch from {first.batch} to {last.batch}. At {first.batch} {why}."
    # From the first batch on, every second stretch between two crossings pays: of batches that do, the last one before
    # a crossing, or the first one after it.
    pays_at_first = first.chain.speedup > 1
    ends = [str(int(each) + (place % 2 == pays_at_first)) for place, each in enumerate(crossings(better, "chain"))]
    if first.chain.speedup > 1 and len(ends) == 1:
        return f"speculate up to a batch of about {ends[0]}. At {losing[0].batch} {why}."
    bounds = [*([str(first.batch)] if first.chain.speedup > 1 else []), *ends, str(last.batch)]
    stretches = " and ".join(f"{low} to {high}" for low, high in zip(bounds[::2], bounds[1::2], strict=False))
    return f"speculate at batches of about {stretches} only. At {losing[0].batch} {why}."


def _measured_cause(point: BatchPoint, costs: CostModel) -> str:
    """What costs most of what a point's chain or tree adds to a plain iteration, for how many tokens."""
    shape, plain_s = point.chain.shape, costs.plain_iteration_s
    verify = float(costs.verification.seconds(shape.nodes + 1)) / plain_s - 1
    draft = shape.seconds(costs) / plain_s - 1 - verify
    gain = f"for {shape.tokens - 1:.2f} more tokens"
    if draft > verify:
        return f"drafting takes {draft:.0%} of a plain iteration {gain}"
    return f"verifying {shape.nodes + 1} tokens a sequence adds {verify:.0%} to a plain iteration {gain}"


def _cause(point: BatchPoint, target: ModelShape, draft: ModelShape | None, setup: Setup) -> str:
    """What costs most of what a point's chain or tree adds to a plain pass."""
    shape, batch = point.chain.shape, point.batch
    rows, plain = shape.nodes + 1, pass_time(target, setup, batch, 1)
    verified = pass_time(target, setup, batch, rows)
    added = {after.name: after.seconds - part.seconds for part, after in zip(plain.parts, verified.parts, strict=True)}
    added["draft"] = sum(pass_time(draft, setup, batch, width).seconds for width in shape.widths) if draft else 0.0
    added["engine"] = setup.engine_s(batch)
    most = max(added, key=lambda name: added[name])
    share = f"{added[most] / plain.seconds:.0%} of a plain pass"
    if most == "draft":
        return f"even its best draft takes {share} to make"
    if most == "engine":
        return f"the engine's own work in a round takes {share}"
    grows = f"verifying {rows} tokens a sequence adds {verified.seconds / plain.seconds - 1:.0%} to a plain pass"
    part = next(each for each in verified.parts if each.name == most)
    if most == "weights" and part.limit == "bandwidth" and target.experts:
        one, several = (target.touched_experts(batch * count) for count in (1, rows))
        return f"{grows}: they are routed to {several:.0f} of {target.experts} experts a layer, not to {one:.0f}"
    start = compute_bound_from(target, setup) if most == "weights" else None
    if start:
        return f"{grows}: passes are compute-bound from about {start:,} tokens"
    return f"{grows}: {part.limit} of {most}"
