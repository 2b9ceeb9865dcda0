"""What the documentation says is true: its examples run, its tables are current, its links lead somewhere."""

import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from benchmarks import reason_rules, reasons
from benchmarks.enumeration import all_tables, bias, emitted_distribution
from decoding import METHODS, DecodeSession, Sampling, load_run, save_run
from decoding.drafters import DRAFTERS, DelayedDrafter, DySpecDrafter, IIDPathsDrafter
from decoding.engines.base import TOLERANCE, Visibility
from decoding.engines.choose import Made
from decoding.methods.method import Method, fitting
from decoding.session.session import Limits
from decoding.verifiers import VERIFIERS
from pages.ui import PAGES

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# Paths of this repository that a text names in backticks; words in capitals stand for what a person puts there.
NAMED = re.compile(r"`((?:app|benchmarks|decoding|docs|pages|sample_prompts|tests|viz)(?:/[\w.-]+)*/?)`")
MODULE = re.compile(r"python3? -m ((?:benchmarks|decoding)[\w.]*)")


@cache
def examples() -> dict[str, list[str]]:
    """Python blocks of `extending.md` by the file that their first line names."""
    found: dict[str, list[str]] = {}
    for language, code in BLOCK.findall((ROOT / "docs" / "extending.md").read_text(encoding="utf-8")):
        if language == "python":
            found.setdefault(code.splitlines()[0].removeprefix("# "), []).append(code)
    return found


@pytest.fixture
def module(monkeypatch) -> Iterator:
    """A module of an example, in the place that its first line names while the test runs."""

    def load(path: str) -> ModuleType:
        (code,) = examples()[path]
        made = ModuleType(path.removesuffix(".py").replace("/", "."))
        monkeypatch.setitem(sys.modules, made.__name__, made)
        exec(compile(code, path, "exec"), made.__dict__)
        return made

    return load


def example_method(drafter: type, monkeypatch) -> Method:
    """The entry of `METHODS` that an example shows, registered with its drafter."""
    (code,) = [code for code in examples()["decoding/methods/methods.py"] if drafter.__name__ in code]
    method = eval(code, {"Method": Method, "drafters": SimpleNamespace(**{drafter.__name__: drafter})})
    monkeypatch.setitem(DRAFTERS, method.name, drafter)
    monkeypatch.setitem(METHODS, method.name, method)
    return method


def decoded(pair, method: Method, prompt: str, tokens: int = 24) -> DecodeSession:
    session = DecodeSession(pair, method, pair.vocabulary.encode(prompt), limits=Limits(tokens, rows="full"))
    list(session)
    return session


PROMPT = "The dog ran to the tree. The cat ran to the tree. The dog ran to the tree. The cat ran to"


def test_every_example_is_run_by_a_test():
    assert set(examples()) == {
        "decoding/drafters/fan.py", "decoding/methods/methods.py",
        "decoding/verifiers/last_draw.py", "decoding/engines/chunked.py", "pages/depths.py",
        "benchmarks/reason_rules.py", "benchmarks/reasons.py, benchmarks/transform_test.py",
        "tests/drafters/test_fan.py",
    }  # fmt: skip


def test_the_example_of_a_drafter_keeps_the_greedy_text(pair, module, monkeypatch, tmp_path):
    method = example_method(module("decoding/drafters/fan.py").FanDrafter, monkeypatch)
    expected = decoded(pair, METHODS["autoregressive"], PROMPT).tokens
    fits = fitting(method.drafter.draft_sampling, Sampling())
    assert {"greedy", "nss"} <= set(fits)
    for verifier in fits:
        session = decoded(pair, method.with_settings(verifier=verifier), PROMPT)
        assert session.tokens == expected, verifier
        accepted = sum(len(iteration.accepted) for iteration in session.iterations)
        assert accepted >= 3, "a draft that never agrees tests nothing"
    # Its record is one that a file takes, and its bound settings are refused in a sentence.
    save_run(session.trace(), tmp_path / "run.dscope")
    assert load_run(tmp_path / "run.dscope").iterations[0].rule.drafter == "fan"
    with pytest.raises(ValueError, match="length"):
        method.with_settings(length=0)


def test_the_rule_of_an_example_recomputes_its_trees_and_their_reasons(module, monkeypatch):
    kind = module("decoding/drafters/fan.py").FanDrafter
    example_method(kind, monkeypatch)
    (code,), rule = examples()["benchmarks/reason_rules.py"], dict(vars(reason_rules))
    exec(compile(code, "reason_rules.py", "exec"), rule)
    (lines,) = examples()["benchmarks/reasons.py, benchmarks/transform_test.py"]
    random = np.random.default_rng(0)
    names = {"reason_rules": SimpleNamespace(**rule), "drafters": SimpleNamespace(FanDrafter=kind),
             "whole": lambda low, high: int(random.integers(low, high + 1))}  # fmt: skip
    entries = [lambda line=line: eval(f"{{{line}\n}}", names)["fan"] for line in lines.splitlines()[1:]]
    monkeypatch.setitem(reasons.RULES, "fan", entries[0]())
    monkeypatch.setattr(reasons, "random_drafter", lambda *_: kind(**entries[1]()))
    assert entries[2]() == kind(width=2, length=2)
    found = reasons.FalseReason()
    for seed in range(3):
        reasons.check_run("fan", seed, found)
    assert found.wrong == [] and found.nodes["fan"] > 20
    assert {"expanded", "max_depth", "level", "chain"} <= set(found.codes)
    monkeypatch.setitem(reasons.RULES, "fan", rule["nothing"])
    reasons.check_run("fan", 0, found)
    assert found.wrong, "another rule is noticed"


def test_the_test_of_an_example_passes(module):
    module("decoding/drafters/fan.py")
    module("tests/drafters/test_fan.py").test_the_root_has_all_children_and_every_chain_its_length()


@pytest.mark.parametrize(
    ("drafter", "fits"),
    [
        (IIDPathsDrafter(paths=2, length=2), True),
        (DelayedDrafter(paths=2, trunk=1, branch=1), True),
        (DySpecDrafter(node_budget=3), False),
    ],
)
def test_the_example_of_a_verifier_is_lossless_where_it_says_so_and_biased_elsewhere(
    module, monkeypatch, drafter, fits
):
    kind = module("decoding/verifiers/last_draw.py").LastDrawVerifier
    monkeypatch.setitem(VERIFIERS, kind.name, kind)
    assert (kind.name in fitting(drafter.draft_sampling, Sampling(temperature=1.0))) == fits
    found = [bias(emitted_distribution(drafter, kind(), tables), tables) for tables in all_tables(3, count_random=2)]
    assert max(found) <= 1e-9 if fits else max(found) > 1e-3, found


def test_the_example_of_an_engine_agrees_with_transformers(pair, module, monkeypatch):
    kind = module("decoding/engines/chunked.py").ChunkedEngine
    for model in (pair.target, pair.draft):
        how = {name: getattr(model, name) for name in ("num_layers", "device", "dtype", "mask_kind")}
        engine = kind("chunked", model.with_engine("transformers").engine.forward, **how)
        monkeypatch.setitem(model._loaded.engines, "chunked", Made(engine, None, "a test"))
    ids, reference = np.arange(5, 26), pair.target.with_engine("transformers").engine
    among = np.tri(21, dtype=bool)
    among[15:, 12:15] = False  # a second branch
    logits = []
    for engine in (pair.target.with_engine("chunked").engine, reference):
        cache = engine.new_cache(8)
        engine.run(cache, ids[:3], np.arange(3), engine.mask(Visibility.causal(0, 3)), 1)
        seen = engine.mask(Visibility(3, among))
        positions = np.r_[3:18, 15:21]
        logits.append(engine.run(cache, ids, positions, seen, 0).log_softmax(-1))
        assert cache.length == 24
    assert torch.allclose(*logits, atol=TOLERANCE[torch.float32])
    text = [decoded(each, METHODS["eagle2"], PROMPT, 8).tokens for each in (pair.with_engine("chunked"), pair)]
    assert text[0] == text[1]


def test_the_example_of_a_page_is_drawn(monkeypatch, tmp_path):
    (code,) = examples()["pages/depths.py"]
    (tmp_path / "pages").mkdir()
    for page in ("app.py", *(f"pages/{each.name}" for each in (ROOT / "pages").glob("*.py"))):
        shutil.copy(ROOT / page, tmp_path / page)
    (tmp_path / "pages" / "depths.py").write_text(code, encoding="utf-8")
    monkeypatch.setitem(PAGES, "Depths", "pages/depths.py")
    at = AppTest.from_file(str(tmp_path / "app.py"), default_timeout=30)
    at.switch_page("pages/depths.py").run()
    assert not at.exception and not at.error
    assert "drafted tokens accepted in" in at.caption[-1].value and len(at.get("plotly_chart")) == 1


@pytest.mark.parametrize("page", ["README.md", "docs/methods.md", "docs/files.md"])
def test_the_python_of_other_pages_runs(pair, monkeypatch, tmp_path, capsys, page):
    from decoding.models import pair as loading
    from decoding.session import session

    monkeypatch.setattr(loading, "load_pair", lambda settings: pair)  # it is in memory already
    monkeypatch.setattr(session.Limits.__init__, "__defaults__", (6, *session.Limits.__init__.__defaults__[1:]))
    monkeypatch.chdir(tmp_path)
    blocks = [
        code for language, code in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")) if language == "python"
    ]
    assert blocks
    for code in blocks:
        scope = {"__name__": "docs"}
        exec(compile(code, page, "exec"), scope)
        run = scope.get("run") or scope["session"].trace()
        assert page != "docs/files.md" or f"{len(run.iterations)} target passes" in capsys.readouterr().out
        assert page == "docs/methods.md" or run.iterations


def test_every_link_and_every_file_that_is_named_is_there():
    broken = []
    for page in DOCS:
        text = page.read_text(encoding="utf-8")
        for target in LINK.findall(text):
            place = page.parent / target.partition("#")[0] if not target.startswith("#") else page
            if "://" not in target and not place.exists():
                broken.append(f"{page.name}: {target}")
            elif "#" in target and "://" not in target:
                heads = re.findall(r"^#+ (.*)$", place.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
                if target.partition("#")[2] not in anchors:
                    broken.append(f"{page.name}: {target}")
        for name in NAMED.findall(text):
            here = {f"{page.parent.name}/{name}", name}
            if not any((ROOT / each).exists() for each in here) and name not in examples():
                broken.append(f"{page.name}: `{name}`")
        for name in MODULE.findall(text):
            path = ROOT / name.replace(".", "/")
            if not (path.with_suffix(".py").exists() or (path / "__main__.py").exists()) and name != "benchmarks.NAME":
                broken.append(f"{page.name}: python -m {name}")
    assert broken == []


def test_the_tables_of_the_reference_are_current():
    from benchmarks.reference import outdated

    assert outdated() == {}, "run python -m benchmarks.reference"


def test_a_table_that_is_not_current_is_noticed(tmp_path):
    from benchmarks.reference import WRITTEN, outdated

    (tmp_path / "docs").mkdir()
    for page in WRITTEN:
        shutil.copy(ROOT / page, tmp_path / page)
    methods = tmp_path / "docs" / "methods.md"
    right = methods.read_text(encoding="utf-8")
    methods.write_text(right.replace("from 1 to 64", "from 1 to 65", 1), encoding="utf-8")
    assert outdated(tmp_path) == {methods: right}


def test_every_method_drafter_verifier_and_field_stands_in_the_reference():
    from decoding.trace.records import IterationTrace, NodeTrace, RunTrace

    methods = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert [name for name in (*METHODS, *DRAFTERS, *VERIFIERS) if f"`{name}`" not in methods] == []
    named = {info for method in METHODS.values() for info in method.infos}
    assert [name for name in named if f"| `{name}` |" not in methods] == []
    files = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    fields = {name for kind in (RunTrace, IterationTrace, NodeTrace) for name in kind.__dataclass_fields__}
    assert [name for name in fields if f"| `{name}` |" not in files] == []
    assert "Annotated" not in files


def test_every_benchmark_that_is_a_command_is_named():
    experiments = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    commands = {
        path.stem for path in (ROOT / "benchmarks").glob("*.py") if '__name__ == "__main__"' in path.read_text()
    }
    commands -= {"house", "mutants"}  # of the code itself: docs/architecture.md
    assert [name for name in sorted(commands) if f"`{name}`" not in experiments] == []


def test_the_readme_is_short_and_shows_pictures_that_are_there():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 120
    spoken = re.sub(
        r"```.*?```|<!-- performance: .*performance: end -->|^\|.*?$", "", readme, flags=re.DOTALL | re.MULTILINE
    )
    assert len(re.findall(r"[A-Za-z]{2,}", re.sub(r"\]\(.*?\)", "", spoken))) < 540  # three minutes aloud
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", readme)
    assert pictures and all((ROOT / each).stat().st_size < 2_000_000 for each in pictures)
