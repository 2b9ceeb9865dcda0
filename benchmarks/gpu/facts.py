"""Part *facts*: versions, what attention costs with and without cuDNN, how long the device takes to answer, tests."""

import contextlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from statistics import median

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.gpu.report import Report, Step
from benchmarks.roofline import median_s
from decoding.common.files import ROOT
from decoding.engines.cuda_graph import Transfers
from decoding.experiments.command import print_table
from decoding.papers.measured.mask_order import timed

# What models and benchmarks need, beside torch. The app and its figures need more, and are not run here.
NEEDED = (
    "transformers", "safetensors", "numpy", "scipy", "pandas", "pyarrow", "accelerate", "psutil", "platformdirs",
    "msgspec", "pytest",
)  # fmt: skip
TESTS = (
    "tests/engines/test_graphs.py",
    "tests/engines/test_packed_cuda.py",
    "tests/engines/test_cuda_graph_on_cuda.py",
)
NEEDS_CUDA = "test_cuda_graph_on_cuda"
TESTS_S, TEST_PROCESSES = 330, 4
# (query heads, key heads, size of a head, queries, key rows): Pythia-2.8B's, and Llama's whose heads share keys.
SHAPES = tuple((*heads, queries, rows) for heads in ((32, 32, 80), (32, 8, 128))
               for queries, rows in ((1, 256), (16, 512), (64, 512), (96, 1024), (128, 2048)))  # fmt: skip
BACKENDS = {
    "default, cuDNN on": None,
    "default, cuDNN off": None,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
# Largest difference from float32 that rounding explains: of values of size 1, the rows of attention being means.
ROUNDING = {torch.bfloat16: 3e-2, torch.float32: 1e-4}
SLOW_PLAN_MS = 20.0
ANSWER_MS = 0.1


def steps(_report: Report) -> Iterator[Step]:
    """The steps of this part."""
    yield "versions", versions
    yield "answers of the device", answers
    yield "attention", attention
    yield "tests", tests


def versions(report: Report) -> None:
    """What runs here, and what is missing."""
    found: dict[str, object] = {"python": platform.python_version(), "torch": torch.__version__}
    missing = []
    for name in NEEDED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            missing.append(name)
    found |= {"cpus": os.cpu_count(), "disk_gb": round(shutil.disk_usage(".").free / 1e9)}
    if report.cuda:
        properties = torch.cuda.get_device_properties(0)
        free, total = torch.cuda.mem_get_info()
        found |= {
            "gpu": properties.name, "capability": f"{properties.major}.{properties.minor}", "driver": _driver(),
            "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "multiprocessors": properties.multi_processor_count, "memory_gb": total / 1e9, "free_gb": free / 1e9,
            "bf16": torch.cuda.is_bf16_supported(),
        }  # fmt: skip
    report.figures["versions"] = found
    print_table(("what", "which"), list(found.items()))
    gpu = f"{found['gpu']}, driver {found['driver']}, CUDA {found['cuda']}, " if report.cuda else ""
    report.works(f"{gpu}torch {found['torch']}, transformers {found.get('transformers')}, Python {found['python']}")
    if missing:
        report.wrong(f"missing packages: {', '.join(missing)} (docs/gpu.md says how to bring them along)")
    if not hasattr(torch._C, "_cuda_clearCublasWorkspaces") and report.cuda:
        report.wrong("this PyTorch cannot clear cuBLAS workspaces: graphs cannot be captured")


def _driver() -> str:
    try:
        asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def answers(report: Report) -> None:
    """How long a small number takes from the host to the device and back: what every iteration waits for at least."""
    transfers = Transfers(report.device)
    static = torch.zeros(64, dtype=torch.int64, device=report.device)

    def there_and_back() -> None:
        staged = transfers.staging(static)
        staged.fill_(1)
        transfers.upload(staged, static)
        transfers.read(static)

    seconds = median_s(there_and_back, report.device, repeats=200)
    report.figures["answers"] = {"there_and_back_us": 1e6 * seconds}
    kind = "works" if 1000 * seconds <= ANSWER_MS else "slow"
    report.judge(kind, f"a number goes to the device and back in {1e6 * seconds:.0f} us, host waiting")


def attention(report: Report) -> None:
    """Every backend on the shapes of trees: its error, its first call on a new shape, and the calls after it."""
    dtype = torch.bfloat16 if report.cuda else torch.float32
    shapes = SHAPES if report.cuda else SHAPES[:1]
    rows, failed, wrong = [], {}, {}
    for shape in shapes:
        for name, backend in BACKENDS.items():
            if name in ("cuDNN", "efficient") and not report.cuda:
                continue
            # cuDNN plans each shape once: by itself it gets a query more than PyTorch's choice did, which may be cuDNN.
            tried = (*shape[:3], shape[3] + (name == "cuDNN"), shape[4])
            queries, keys, values, mask, expected = _attention_inputs(tried, dtype, report.device)
            cudnn = name != "default, cuDNN off"

            def call(backend=backend, cudnn=cudnn, tensors=(queries, keys, values, mask)):
                with _backend(backend, cudnn):
                    return scaled_dot_product_attention(*tensors)

            try:
                first_ms = 1000 * timed(call, report.device)
                error = (call().float() - expected).abs().max().item()
                usual_ms = 1000 * median_s(call, report.device)
            except RuntimeError as problem:
                failed.setdefault(name, str(problem).strip().splitlines()[0][:100])
                continue
            if not error <= ROUNDING[dtype]:
                wrong.setdefault(name, []).append(f"{tried}: {error:.2g}")
            rows.append((name, *tried, first_ms, usual_ms, error))
    names = ("backend", "heads", "key heads", "head size", "queries", "rows", "first ms", "ms", "error")
    report.figures["attention"] = [dict(zip(names, row, strict=True)) for row in rows]
    print_table(names, [(*row[:6], f"{row[6]:.2f}", f"{row[7]:.3f}", f"{row[8]:.1e}") for row in rows])
    for name, where in wrong.items():
        report.wrong(f"attention by {name} is off by more than rounding at {where[0]}, {len(where)} shapes in all")
    for name, why in failed.items():
        report.judge("wrong" if name.startswith("default") else "slow", f"attention by {name} refuses: {why}")
    for name in sorted({row[0] for row in rows}):
        mine = [row for row in rows if row[0] == name]
        plans, usual = max(row[6] for row in mine[1:] or mine), median(row[7] for row in mine)
        kind = "slow" if plans > SLOW_PLAN_MS else "works"
        report.judge(kind, f"attention by {name}: {usual:.3f} ms, up to {plans:.1f} ms when a shape is new")


@lru_cache(maxsize=2)
def _attention_inputs(shape, dtype, device):
    """Queries, keys that query heads share through a stride of zero, values, a mask, and what float32 says."""
    heads, key_heads, size, queries, rows = shape
    maker = torch.Generator().manual_seed(0)
    drawn = [torch.randn(key_heads, 1, rows, size, generator=maker) for _ in range(2)]
    asked = torch.randn(key_heads, heads // key_heads, queries, size, generator=maker)
    seen = torch.rand(1, 1, queries, rows, generator=maker) < 0.7
    seen[..., 0] = True
    floats = [part.to(dtype).float() for part in (asked, *drawn)]
    repeated = [part.expand(-1, heads // key_heads, -1, -1) for part in floats[1:]]
    added = torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf)
    expected = scaled_dot_product_attention(floats[0], *repeated, added).to(device)
    asked, *drawn = (part.to(device, dtype) for part in (asked, *drawn))
    keys, values = (part.expand(-1, heads // key_heads, -1, -1) for part in drawn)
    return asked, keys, values, added.to(device, dtype), expected


@contextlib.contextmanager
def _backend(backend: SDPBackend | None, cudnn: bool) -> Iterator[None]:
    """One backend alone, or the choice that PyTorch makes with or without cuDNN."""
    if backend is not None:
        with sdpa_kernel([backend]):
            yield
        return
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(cudnn)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def tests(report: Report) -> None:
    """The tests of captured passes; those that only a CUDA device can run are skipped elsewhere."""
    # Verbose, as each test is then named when it ends: what runs out of time or crashes has no summary.
    command = [sys.executable, "-m", "pytest", "-v", "-rfE", "-p", "no:cacheprovider", *TESTS]
    if report.cuda and importlib.util.find_spec("xdist"):
        command += ["-n", str(TEST_PROCESSES)]
    time_s = min(TESTS_S, report.budget.left_s)
    try:
        ran = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=time_s, errors="replace", check=False
        )
        output, code = ran.stdout + ran.stderr, ran.returncode
    except subprocess.TimeoutExpired as late:
        output, code = (late.stdout or b"").decode(errors="replace"), None
        report.slow(f"the tests did not end in {time_s:.0f} s")
    print(output[-6000:])
    failed = _named("FAILED|ERROR", output)
    counted = dict((kind, int(count)) for count, kind in re.findall(r"(\d+) (passed|failed|skipped|error)", output))
    report.figures["tests"] = {"counted": counted, "failed": failed}
    for name in failed[:3]:
        report.wrong(f"test {name.removeprefix('tests/engines/')}")
    if counted.get("passed"):
        report.works(f"tests: {', '.join(f'{count} {kind}' for kind, count in counted.items())}")
    if code and not failed:
        last = (output.strip().splitlines() or ["nothing was printed"])[-1]
        report.wrong(f"the tests ended with an error of their own (code {code}: {last[:100]})")
    if code is not None and not counted.get("passed"):
        report.wrong("no test passed")
    if report.cuda and (skipped := [name for name in _named("SKIPPED", output) if NEEDS_CUDA in name]):
        report.wrong(f"{len(skipped)} tests that need CUDA were skipped though it is here, first {skipped[0]}")


def _named(outcome: str, output: str) -> list[str]:
    """Tests of an outcome: as they ended, before it by one process and after it by several, and in the summary."""
    found = re.findall(rf"(?:\b(?:{outcome}) (\S+\.py\S*))|(?:(\S+\.py::\S+) (?:{outcome})\b)", output)
    return list(dict.fromkeys(before or behind for before, behind in found))
