"""Part *stale*: whether graphs outlive one another, and what comes after a capture that failed. It goes last.

cuBLAS gives each stream a workspace, whose address a captured product keeps. Whoever frees it leaves the graph writing
to memory of others. Here memory that was freed is taken again and filled, and a living graph is replayed: neither may
what it gives be wrong, nor what stands in that memory have changed. The last step does the same without the care that
`decoding.engines.graphs` takes, in a process of its own, which an illegal access ends.
"""

import gc
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import torch

from benchmarks.gpu.report import Report, Step, first_line
from decoding.common.files import ROOT
from decoding.engines.graphs import Graphs
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair, embedded_pair, release
from decoding.session.session import DecodeSession, Limits

# A product so flat that cuBLAS splits its sum, for which it needs its workspace; and small ones for a CPU.
TALL, SMALL = (64, 10240, 2560), (4, 64, 32)
# Memory taken again: more than the workspaces, in pieces of every size that one may have.
PIECES, PIECE_BYTES, FILL = 48, 2**23, 0x5A
REPLAYS, TOKENS = 20, 48
PROMPT = "Once upon a time there was a cat who had two friends, a dog and"
CONTROL_S, CONTROL_LEAST_S = 90, 20  # the least is about what it takes to import torch and reach the device
LARGEST_ERROR = 1e-2
BAD_ACCESS = ("illegal memory access", "misaligned address", "unspecified launch failure", "invalid resource handle")


class _Owner:
    """What a graph is bound to."""


class _Product:
    """A product of fixed numbers in static memory, as a graph repeats it."""

    def __init__(self, device: torch.device, seed: int):
        rows, inner, columns = TALL if device.type == "cuda" else SMALL
        maker = torch.Generator(device).manual_seed(seed)
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.left = torch.randn((rows, inner), generator=maker, device=device).to(dtype)
        self.right = torch.randn((inner, columns), generator=maker, device=device).to(dtype)
        self.out = torch.zeros((rows, columns), dtype=dtype, device=device)
        self.expected = self.left.float() @ self.right.float()

    def __call__(self) -> None:
        self.out.copy_(self.left @ self.right)

    def error(self) -> float:
        """Largest error of what was written last, in units of the largest true value."""
        worst = (self.out.float() - self.expected).abs().max() / self.expected.abs().max()
        self.out.fill_(torch.nan)
        return float(worst)


def steps(report: Report) -> Iterator[Step]:
    """The steps of this part, the harmless ones first."""
    yield "graphs that outlive another", products
    yield "pairs that outlive another", pairs
    if report.cuda:
        yield "a capture that fails", failed_capture
        yield "without care, in another process", control


def products(report: Report) -> None:
    """Two products captured by `Graphs`: one graph is destroyed, its memory taken again, and the other replayed."""
    graphs, owners = Graphs(report.device), [_Owner(), _Owner()]
    bodies = [_Product(report.device, seed) for seed in range(2)]
    for _ in range(3):
        for owner, body in zip(owners, bodies, strict=True):
            graphs.call(owner, "product", body)
    before = [body.error() for body in bodies]
    del owners[0]
    if report.cuda:
        torch._C._cuda_clearCublasWorkspaces()  # what destroying a graph does from PyTorch 2.12 on
    filled = _take_freed(report.device)
    errors = []
    for _ in range(REPLAYS):
        graphs.call(owners[0], "product", bodies[1])
        errors.append(bodies[1].error())
    touched = _touched(filled)
    after = _worst(errors)
    report.figures["products"] = {
        "before": before, "after": after, "captured": graphs.captured, "touched": touched
    }  # fmt: skip
    right = _worst([*before, after]) < LARGEST_ERROR and not touched
    report.judge("works" if right else "wrong", f"a graph replayed after another was destroyed: {graphs.captured} "
                 f"graphs, error {after:.1e}, {touched} pieces of others' memory changed")  # fmt: skip
    if report.cuda and graphs.captured != 2:
        report.wrong(f"{graphs.captured} graphs were captured in the place of 2 ({graphs.failure or 'no failure'})")


def _worst(errors: list[float]) -> float:
    """The largest error, nan where one is: a product that was not written is wrong, and no comparison may hide it."""
    return float(np.max(errors))


def _take_freed(device: torch.device) -> list[torch.Tensor]:
    """Give all unused memory back to the device and take as much again, filled."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
    size = PIECE_BYTES if device.type == "cuda" else 2**16
    return [torch.full((size,), FILL, dtype=torch.uint8, device=device) for _ in range(PIECES)]


def _touched(filled: list[torch.Tensor]) -> int:
    """Pieces that hold something else than they were filled with."""
    return sum(not bool((piece == FILL).all()) for piece in filled)


def pairs(report: Report) -> None:
    """Sessions on the graphs of a pair go on rightly while another pair and other sessions are released."""
    first, second = (embedded_pair(report.device.type).with_engine("cuda_graph") for _ in range(2))
    expected = _text(first)
    for _ in range(2):
        _text(second), _text(first)
    staying = _session(first)
    staying.step()
    release(second)
    del second
    filled = _take_freed(report.device)
    list(staying)
    again = _text(first)
    touched = _touched(filled)
    report.figures["pairs"] = {"tokens": len(expected), "touched": touched}
    right = staying.tokens == again == expected and not touched
    report.judge("works" if right else "wrong", f"texts on living graphs {'are the same' if right else 'DIFFER'} after "
                 f"another pair was released, {touched} pieces of others' memory changed")  # fmt: skip
    release(first)


def _session(pair: Pair) -> DecodeSession:
    ids = pair.vocabulary.encode(PROMPT)
    return DecodeSession(pair, METHODS["dynatree"], ids, limits=Limits(TOKENS, record="none"))


def _text(pair: Pair) -> list[int]:
    session = _session(pair)
    list(session)
    return session.tokens


def failed_capture(report: Report) -> None:
    """A body that asks for a value breaks its capture; its work is done, others go on living and can be captured."""
    device = report.device
    total, living, broken, healthy = torch.zeros((), device=device), Graphs(device), Graphs(device), Graphs(device)

    def asks() -> None:
        total.add_(1)
        if float(total) < 0:
            total.zero_()

    stream, owner, body = torch.cuda.current_stream(device), _Owner(), _Product(device, 7)
    for _ in range(3):
        living.call(owner, "product", body)
    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("always")
        for _ in range(4):
            broken.call(owner, "asks", asks)
    drawn = _runs(lambda: torch.rand(1, device=device))
    body.out.fill_(torch.nan)
    living_on = _runs(lambda: living.call(owner, "product", body)) and body.error() < LARGEST_ERROR
    for _ in range(3):
        healthy.call(owner, "product", body)
    filled = _take_freed(device)
    healthy.call(owner, "product", body)
    findings = {
        "work done": float(total) == 4, "gave up": not broken.capture and bool(broken.failure),
        "reported once": sum("could not be captured" in str(each.message) for each in reported) == 1,
        "stream restored": torch.cuda.current_stream(device) == stream, "numbers drawn": drawn,
        "living graphs right": living_on, "others captured": healthy.captured == 1,
        "others right": body.error() < LARGEST_ERROR, "memory of others": not _touched(filled),
    }  # fmt: skip
    report.figures["failed capture"] = findings | {"failure": broken.failure}
    failed = [name for name, holds in findings.items() if not holds]
    report.judge("wrong" if failed else "works", f"after a failed capture ({broken.failure}): "
                 f"{'NOT ' + ', '.join(failed) if failed else ', '.join(findings)}")  # fmt: skip


def _runs(call: Callable[[], object]) -> bool:
    """Whether a call does not fail; what it fails with is printed."""
    try:
        call()
    except RuntimeError as error:
        print(first_line(error))
        return False
    return True


def control(report: Report) -> None:
    """What happens without own workspaces, as PyTorch is and as it is from 2.12 on: whether the care is needed here."""
    for clear in (False, True):
        found = _tried(clear, min(CONTROL_S, report.budget.left_s))
        report.figures[f"control, cleared {clear}"] = found
        words = f"({', '.join(f'{name} {value}' for name, value in found.items())})"
        if "failed" in found:
            report.slow(f"careless graphs were not tried {words}")
            continue
        stale = "ended" in found or found["touched"] > 0 or not found["error"] < LARGEST_ERROR
        if clear:
            reported = "go stale: the trial sees it" if stale else "do not go stale: the trial would not see it"
            report.judge("works" if stale else "slow", f"careless graphs whose workspaces are freed {reported} {words}")
        else:
            report.works(f"careless graphs {'GO STALE' if stale else 'survive'} on torch {torch.__version__} {words}")


def _tried(clear: bool, time_s: float) -> dict:
    """What became of `careless` in a process of its own, in so many seconds."""
    if time_s < CONTROL_LEAST_S:
        return {"failed": "no time was left"}
    command = [sys.executable, "-c", f"from {__name__} import careless; careless({clear})"]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=time_s, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"did not end in {time_s:.0f} s"}
    print(ran.stdout[-2000:], ran.stderr[-2000:])
    return _answer(ran)


def _answer(ran: subprocess.CompletedProcess) -> dict:
    """What `careless` printed, or how it ended: with an access to memory that has gone, or with something else."""
    if not ran.returncode:
        return json.loads(ran.stdout.strip().splitlines()[-1])
    last = (ran.stderr.strip().splitlines() or [f"code {ran.returncode}"])[-1][:160]
    return {"ended" if any(sign in ran.stderr.lower() for sign in BAD_ACCESS) else "failed": last}


def careless(clear: bool) -> None:
    """Two products captured on one stream as PyTorch alone does it; print what comes of destroying the first.

    Args:
        clear: free the workspaces of cuBLAS then, as PyTorch does from 2.12 on.
    """
    device = torch.device("cuda", 0)
    stream, bodies, graphs = torch.cuda.Stream(device), [_Product(device, seed) for seed in range(2)], []
    for body in bodies:
        with torch.cuda.stream(stream):
            body()
        torch.cuda.synchronize(device)
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1], stream=stream):
            body()
    del graphs[0]
    if clear:
        torch._C._cuda_clearCublasWorkspaces()
    filled = _take_freed(device)
    errors = []
    for _ in range(REPLAYS):
        graphs[0].replay()
        errors.append(bodies[1].error())
    print(json.dumps({"error": _worst(errors), "touched": _touched(filled)}))
