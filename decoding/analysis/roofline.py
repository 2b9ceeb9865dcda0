"""What passes would cost on another accelerator, modelled from shapes and data sheets: a roofline. Torch-free.

    setup = Setup(ACCELERATORS["h100-sxm"], context=1024)
    costs = {batch: roofline_costs(target, eagle_head(target), setup, batch) for batch in BATCHES}
    speed_by_batch(costs, Rates((0.7, 0.6)))

A pass is three parts that run one after the other: the layers' weights, attention over cached rows, the output head.
Each takes as long as the slower of its bytes and its operations (Williams et al. 2009), and every layer and pass has a
fixed cost on top. Nothing here is measured: `Efficiency` says where its shares come from, and `gain_band` how far the
model is from what others measured, which `python -m benchmarks.roofline_published --save` has stored.
"""

import json
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from math import log
from statistics import median

from decoding.analysis.batch import MOST_NODES
from decoding.analysis.model_shape import ModelShape
from decoding.common.cost_model import CostCurve, CostModel, CostPoint
from decoding.common.errors import SettingsError, require
from decoding.common.files import ROOT

BATCHES = tuple(2**power for power in range(9))
MOST_CONTEXT, MOST_DEVICES, MOST_BATCH = 2**21, 64, 2**16


@dataclass(frozen=True)
class Accelerator:
    """One accelerator's data sheet; operations are dense ones, sparsity left out."""

    label: str
    bytes_per_s: float  # of its memory
    bf16: float  # operations per second in bfloat16 and float16, accumulated in float32
    fp8: float | None  # in 8-bit floating point; None where it has none, and fp8 weights are computed with in 16 bits
    memory: float  # bytes
    source: str  # where the figures stand

    def __post_init__(self):
        figures = (self.bytes_per_s, self.bf16, self.memory, *([self.fp8] if self.fp8 is not None else []))
        require(
            all(0 < figure < 1e18 for figure in figures),
            "Bandwidth, operations and memory of an accelerator must be above 0.",
        )


_HALVED = "figures with sparsity halved"
ACCELERATORS: dict[str, Accelerator] = {
    "h100-sxm": Accelerator("H100 SXM", 3.35e12, 989e12, 1979e12, 80e9, f"NVIDIA H100 data sheet, {_HALVED}"),
    "h100-pcie": Accelerator("H100 PCIe", 2.0e12, 756e12, 1513e12, 80e9, f"NVIDIA H100 data sheet, {_HALVED}"),
    "h200": Accelerator("H200 SXM", 4.8e12, 989e12, 1979e12, 141e9, f"NVIDIA H200 data sheet, {_HALVED}"),
    "b200": Accelerator(
        "B200", 8.0e12, 2250e12, 4500e12, 180e9, f"NVIDIA DGX B200 data sheet, an eighth of the system, {_HALVED}"
    ),
    "a100-80gb": Accelerator("A100 80GB SXM", 2.039e12, 312e12, None, 80e9, "NVIDIA A100 data sheet"),
    "a100-40gb": Accelerator("A100 40GB SXM", 1.555e12, 312e12, None, 40e9, "NVIDIA A100 data sheet"),
    "l40s": Accelerator("L40S", 0.864e12, 362e12, 733e12, 48e9, "NVIDIA L40S data sheet"),
    "rtx-4090": Accelerator(
        "RTX 4090", 1.008e12, 165.2e12, 330.3e12, 24e9, "NVIDIA Ada GPU architecture, appendix A, float32 accumulation"
    ),
    "rtx-3090": Accelerator(
        "RTX 3090", 0.936e12, 71e12, None, 24e9, "NVIDIA GA102 GPU architecture, appendix A, float32 accumulation"
    ),
    "mi300x": Accelerator("MI300X", 5.3e12, 1307.4e12, 2614.9e12, 192e9, "AMD Instinct MI300X data sheet"),
}

# Bytes of a weight of the layers, and whether products run in 8 bits. Embedding and output head have 16 bits at least.
# int8 and int4 are weight-only: products run in 16 bits; int4 has a 16-bit scale and a 4-bit zero per 128 weights.
WEIGHTS: dict[str, tuple[float, bool]] = {
    "bf16": (2.0, False), "fp16": (2.0, False), "fp8": (1.0, True), "int8": (1.0, False),
    "int4": (0.5 + 20 / 8 / 128, False), "fp32": (4.0, False),
}  # fmt: skip
CACHES: dict[str, float] = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp32": 4.0}
HEAD_BYTES = 2.0


@dataclass(frozen=True)
class Efficiency:
    """What of a data sheet engines reach, and what passes cost beside it.

    The defaults are of one H200 (docs/gpu.md): a copy at 4.10 of 4.8 TB/s, a product at 731 of 989 TFLOP/s; the fixed
    costs are what is left of one captured pass of three models (2.8B: 2.44 ms, Llama 1.1B: 1.41, 70M: 0.345) once
    their bytes are taken off, a line over their layers. The all-reduce is what gpt-fast's published passes of
    Llama-2-7B on 1, 2, 4 and 8 A100 leave over, and an engine's own work on a draft what the iterations with an EAGLE
    head in vLLM GitHub thread 20780 do (2025, batch 1). With larger batches engines of that year needed more, 2 to 8 ms
    in SGLang 0.4.4 (EAGLE-3 paper, table 3): set what yours needs.
    """

    # bandwidth, operations: share of the sheet's
    bandwidth: float = 0.85
    operations: float = 0.74
    # layer_s, pass_s: of every layer and every pass, beside bytes and operations: launches, norms, sampling
    layer_s: float = 31e-6
    pass_s: float = 130e-6
    # Of each of the two per layer where several devices share a model; the bytes sent are left out
    all_reduce_s: float = 10e-6
    # draft_s, sequence_s: what an engine adds to a round of speculation, and for each of its sequences
    draft_s: float = 750e-6
    sequence_s: float = 0.0
    # attention_bandwidth, attention_operations: shares that attention over cached rows reaches; None: those of all
    attention_bandwidth: float | None = None
    attention_operations: float | None = None

    def __post_init__(self):
        shares = self.bandwidth, self.operations, self.attention_bandwidth, self.attention_operations
        require(
            all(0 < share <= 1 for share in shares if share is not None),
            "Shares of bandwidth and operations must be above 0 and at most 1.",
        )
        require(
            all(0 <= seconds < 1 for seconds in astuple(self)[2:-2]),
            "Fixed costs must be 0 or more, and less than a second.",
        )


@dataclass(frozen=True)
class Setup:
    """Where a pair would run."""

    accelerator: Accelerator
    devices: int = 1  # accelerators that share each layer (tensor parallelism)
    # weights, cache: formats, of `WEIGHTS` and `CACHES`
    weights: str = "bf16"
    cache: str = "bf16"
    context: int = 1024  # cached rows of every sequence
    efficiency: Efficiency = Efficiency()

    def __post_init__(self):
        require(self.weights in WEIGHTS, f"Weights are {self.weights!r}; choose one of {', '.join(WEIGHTS)}.")
        require(self.cache in CACHES, f"The cache is {self.cache!r}; choose one of {', '.join(CACHES)}.")
        require(0 <= self.context <= MOST_CONTEXT, f"The context must be 0 to {MOST_CONTEXT:,} tokens.")
        require(1 <= self.devices <= MOST_DEVICES, f"Devices (tensor parallel) must be 1 to {MOST_DEVICES}.")

    @property
    def line(self) -> str:
        """What is modelled, in one line."""
        of = self.efficiency
        count = f"{self.devices} x " if self.devices > 1 else ""
        reduced = f"{1e6 * of.all_reduce_s:.0f} us an all-reduce, " if self.devices > 1 else ""
        return (
            f"modelled: {count}{self.accelerator.label} ({self.accelerator.source}), {self.weights} weights, "
            f"{self.cache} KV cache, {self.context:,} tokens of context, {of.bandwidth:.0%} of the bandwidth, "
            f"{of.operations:.0%} of the FLOPs (MFU), {1e6 * of.layer_s:.0f} us a layer, {1e6 * of.pass_s:.0f} us a "
            f"pass, {reduced}{1e3 * of.draft_s:g} ms a round and {1e3 * of.sequence_s:g} ms a sequence for the engine"
        )

    def engine_s(self, batch: int) -> float:
        """What an engine adds to an iteration that verifies drafts of so many sequences."""
        return self.efficiency.draft_s + batch * self.efficiency.sequence_s


@dataclass(frozen=True)
class Part:
    """One part of a pass, on one device."""

    name: str  # weights, attention or output head
    bytes: float
    operations: float
    bytes_s: float
    operations_s: float

    @property
    def seconds(self) -> float:
        """The slower of the two."""
        return max(self.bytes_s, self.operations_s)

    @property
    def limit(self) -> str:
        """The resource that it waits for."""
        return "compute" if self.operations_s > self.bytes_s else "bandwidth"


@dataclass(frozen=True)
class PassTime:
    """A pass by its parts; `fixed_s` is what layers, the pass and all-reduces cost beside them."""

    parts: tuple[Part, ...]
    fixed_s: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return sum(part.seconds for part in self.parts) + self.fixed_s

    @property
    def limit(self) -> str:
        """What takes the largest part of it, in words."""
        longest = max(self.parts, key=lambda part: part.seconds)
        return "fixed costs" if self.fixed_s > longest.seconds else f"{longest.limit} ({longest.name})"


@lru_cache(maxsize=8192)
def pass_time(model: ModelShape, setup: Setup, batch: int, rows: int) -> PassTime:
    """A pass of `batch` sequences, each with `rows` new tokens after its context.

    Cached rows are read once per sequence, however many of its tokens attend to them.
    """
    tokens, of, chip = batch * rows, setup.efficiency, setup.accelerator
    weight_bytes, in_8_bits = WEIGHTS[setup.weights]
    bandwidth = chip.bytes_per_s * of.bandwidth
    rate = of.operations * chip.bf16
    body_rate = of.operations * (chip.fp8 if in_8_bits and chip.fp8 else chip.bf16)
    shared_by = setup.devices

    def part(name: str, moved: float, operations: float, rate: float) -> Part:
        moved, operations = moved / shared_by, operations / shared_by
        return Part(name, moved, operations, moved / bandwidth, operations / rate)

    def attention(moved: float, operations: float) -> Part:
        # A device holds one key/value head at least
        moved, operations = moved / min(shared_by, model.kv_heads), operations / shared_by
        bytes_s = moved / (chip.bytes_per_s * (of.attention_bandwidth or of.bandwidth))
        return Part("attention", moved, operations, bytes_s,
                    operations / (chip.bf16 * (of.attention_operations or of.operations)))  # fmt: skip

    seen = setup.context + rows
    layer_rows = (model.layers - model.local_layers) * seen + model.local_layers * min(seen, model.window)
    body = model.body(model.touched_experts(tokens)) + model.other
    parts = (
        part("weights", weight_bytes * body, 2 * tokens * (model.body(model.active) + model.other), body_rate),
        attention(
            CACHES[setup.cache] * model.kv_values * batch * (layer_rows + model.layers * rows),
            tokens * layer_rows * model.pair_operations,
        ),
        part("output head", max(HEAD_BYTES, weight_bytes) * model.head, 2 * tokens * model.head, rate),
    )
    reduced = 2 * model.layers * of.all_reduce_s if setup.devices > 1 else 0.0
    return PassTime(parts, model.layers * of.layer_s + of.pass_s + reduced)


def roofline_costs(target: ModelShape, draft: ModelShape | None, setup: Setup, batch: int) -> CostModel:
    """Modelled costs of a pair at a batch size; without a draft (lookup in the text) drafting costs nothing."""
    require(1 <= batch <= MOST_BATCH, f"A batch must be 1 to {MOST_BATCH:,} sequences.")

    def curve(model: ModelShape, most: int, engine_s: float) -> CostCurve:
        times = [pass_time(model, setup, batch, size).seconds for size in range(1, most + 1)]
        times[1:] = [seconds + engine_s for seconds in times[1:]]  # a single token verifies no draft
        return CostCurve(tuple(CostPoint(size, each, each, each) for size, each in enumerate(times, 1)))

    free = CostCurve((CostPoint(1, 0.0, 0.0, 0.0),))
    return CostModel(
        target=curve(target, MOST_NODES + 1, setup.engine_s(batch)),
        draft=curve(draft, MOST_NODES, 0.0) if draft else free,
        iteration_s=0.0, level_s=0.0, iterations=0,  # fixed costs are within the passes
        prefix_length=setup.context,
        measured="never: modelled",
        machine=setup.line,
        batch=batch,
    )  # fmt: skip


def needed_bytes(target: ModelShape, draft: ModelShape | None, setup: Setup, batch: int) -> float:
    """Memory that weights and KV caches of a pair take on all devices together.

    Each device holds one key/value head at least: with more devices than heads the caches are there several times.
    """
    weight_bytes, _ = WEIGHTS[setup.weights]
    needed = 0.0
    for model in (target, draft) if draft else (target,):
        embeddings = model.parameters - model.body(model.experts)
        needed += weight_bytes * model.body(model.experts) + max(HEAD_BYTES, weight_bytes) * embeddings
        copies = setup.devices / min(setup.devices, model.kv_heads)
        # Rows outside the window of a local layer are freed, as engines with a cache for each kind of layer do.
        rows = (model.layers - model.local_layers) * setup.context
        rows += model.local_layers * min(setup.context, model.window)
        needed += copies * CACHES[setup.cache] * model.kv_values * rows * batch
    return needed


def most_sequences(target: ModelShape, draft: ModelShape | None, setup: Setup) -> int:
    """The largest batch whose weights and KV caches have room; `SettingsError` where not even one sequence has."""
    room, one = setup.devices * setup.accelerator.memory, needed_bytes(target, draft, setup, 1)
    each = needed_bytes(target, draft, setup, 2) - one
    if one > room:
        more = (replace(setup, devices=count) for count in range(setup.devices + 1, MOST_DEVICES + 1))
        fits = (way for way in more if needed_bytes(target, draft, way, 1) <= way.devices * way.accelerator.memory)
        fewest = next((way.devices for way in fits), None)
        advice = f"set tensor parallel to {fewest} or more, or take smaller weights"
        raise SettingsError(
            f"{target.name} has no room: weights and the KV cache of one sequence take {one / 1e9:,.0f} GB, and "
            f"{setup.devices} x {setup.accelerator.label} has {room / 1e9:,.0f}; "
            f"{advice if fewest else 'take smaller weights, a smaller cache or a shorter context'}."
        )
    return min(MOST_BATCH, 1 + int((room - one) / each)) if each else MOST_BATCH


NEAREST = 12  # published gains that tell how far off a modelled one is
STORED = ROOT / "decoding" / "experiments" / "results" / "roofline_published-cpu.json"


@dataclass(frozen=True)
class Published:
    """A published gain: of what, at which batch, K and mean acceptance length, and how far above it the model is."""

    what: str
    source: str
    batch: int
    length: int
    tokens: float
    error: float
    fitted: bool


@dataclass(frozen=True)
class GainBand:
    """The smallest, the middle and the largest of `count` published gains over modelled ones."""

    low: float
    middle: float
    high: float
    count: int


@lru_cache
def published_gains() -> tuple[Published, ...]:
    """Every published gain of the stored comparison."""
    figures = json.loads(STORED.read_text(encoding="utf-8"))["figures"]
    names = Published.__dataclass_fields__
    return tuple(Published(**{name: each[name] for name in names}) for each in figures if each["unit"] == "x")


def gain_band(batch: int | None = None) -> GainBand:
    """Of all published gains but those that the model was fitted to, or of the `NEAREST` at batches next to one.

    The model's error grows with the batch. Gains as far away as the last of them count too.
    """
    known = [each for each in published_gains() if not each.fitted]
    if batch is not None:
        away = [abs(log(each.batch / batch)) for each in known]
        known = [each for each, far in zip(known, away, strict=True) if far <= sorted(away)[NEAREST - 1] + 1e-9]
    over = [1 / (1 + each.error) for each in known]
    return GainBand(min(over), median(over), max(over), len(over))


def caution() -> str:
    """How far published gains are from modelled ones, in a sentence."""
    band = gain_band()
    side = "below" if band.middle < 1 else "above"
    return (
        f"Modelled is what the hardware permits: {band.count} published gains of EAGLE heads in vLLM and SGLang are "
        f"{abs(band.middle - 1):.0%} {side} it in the median, from {band.low - 1:+.0%} to {band.high - 1:+.0%}. None "
        "was found of a draft model."
    )


def published_lengths(length: int) -> dict[str, float]:
    """Mean acceptance lengths published for drafts of so many tokens, by what drafted and the source."""
    found: dict[str, Published] = {}
    for each in published_gains():
        if each.length == length:  # of gains with another's length, the one that published it stands first
            found.setdefault(each.what.split(",")[0], each)
    return {f"{what} ({each.source})": each.tokens for what, each in found.items()}


def least_first() -> float:
    """The lowest first position that a published mean length of K = 2 leaves room for: half of what it accepts."""
    return min((each.tokens - 1) / 2 for each in published_gains() if each.length == 2)
