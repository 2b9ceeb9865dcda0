"""Imports go one way: pages -> viz -> decoding.trace, pages -> decoding; and a recorded run opens without torch."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import decoding
from benchmarks import house
from tests.helpers.process import printed

TORCH_FREE = (
    "decoding",
    "decoding.trace.records",
    "decoding.trace.run_file",
    "decoding.common.errors",
    "decoding.common.prompts",
    "decoding.models.presets",
    "decoding.diff",
    "decoding.doctor",
    "decoding.export_config",
    "decoding.import_metrics",
    "decoding.record",
    "decoding.roofline",
    "decoding.trace.exports",
    "decoding.trace.engine_config",
    "decoding.trace.engine_metrics",
    "decoding.analysis.bottom_line",
    "decoding.analysis.luck",
    "decoding.analysis.hindsight",
    "decoding.analysis.budgets",
)

# What a room must not import; `None` stands for app.py.
FORBIDDEN: dict[str | None, set[str]] = {
    "decoding": {"streamlit", "plotly", "networkx", "viz", "pages", "app", "benchmarks", "tests"},
    "viz": {"torch", "transformers", "streamlit", "pages", "app", "benchmarks", "tests"},
    "pages": {"app", "benchmarks", "tests"},
    "benchmarks": {"streamlit", "pages", "app", "tests"},
    None: {"tests"},
}
# What viz/ may see of decoding/: records, figures made of nothing else, and errors.
VIZ_MAY_SEE = {
    "decoding.trace", "decoding.analysis.bottom_line", "decoding.analysis.slowdown", "decoding.common.errors",
    "decoding.common.formats",
}  # fmt: skip
# A folder of decoding/ imports only those before it; what stands above them all may import any.
ORDER = (
    "common", "trace", "sampling", "tree", "selector", "drafters", "verifiers", "engines", "models", "heads",
    "methods", "costs", "device", "session", "compare", "replay", "analysis", "recorded", "jobs", "training",
    "experiments", "papers", "papers/measured",
)  # fmt: skip
ABOVE = ("decoding",)  # the front door, and commands
COMMAND = re.compile(r"python -m ([\w.]+)")
# What is named against the arrows and not used: commands that people are shown, and the names of running work.
SHOWN = {
    "decoding/experiments/command.py names benchmarks",
    "decoding/papers/measured/action_times.py names benchmarks.sweep",
    "decoding/papers/paper_result.py names benchmarks",
    "decoding/papers/paper_result.py names benchmarks.sweep",
    "pages/ui/compare/outputs.py names benchmarks.methods",
    "pages/ui/papers/run.py names benchmarks",
    "pages/ui/sweep/form.py names benchmarks.sweep",
}


@cache
def files_of(*rooms: str) -> list[house.SourceFile]:
    """The Python files of some rooms, read and parsed once."""
    return house.sources(rooms)


PROGRAM = tuple(room for rooms in house.ROOMS.values() for room in rooms)


def wrong_imports(file: house.SourceFile) -> list[str]:
    """What a file, given by its path in the repository, imports or names in strings against the arrows."""
    room = file.path.parts[0] if len(file.path.parts) > 1 else None
    modules = {each.module for each in files_of(*PROGRAM)}
    commands = {name.rstrip(".") for text in file.strings() for name in COMMAND.findall(text)}
    names = file.imported() | file.named(modules) | commands & modules
    for node in file.nodes:
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                names.add(node.args[0].value)
    wrong = []
    for name in names:
        bad = name.split(".")[0] in FORBIDDEN[room]
        if room == "viz" and name.split(".")[0] == "decoding":
            bad |= not any(name == seen or name.startswith(f"{seen}.") for seen in VIZ_MAY_SEE)
        if bad:
            wrong.append(f"{file.path} names {name}")
    return sorted(wrong)


def test_names_of_transformers_are_imported_from_where_they_are_defined():
    """Two threads may import it at once, a page's and the worker's: the package puts another module in its own place,
    and the thread that waited gets the first one, which has none of its names."""
    wrong = []
    for file in files_of(*PROGRAM):
        # Trainings and commands are processes of their own.
        if file.path.parts[0] in ("decoding", "pages", "viz") and file.path.parts[:2] != ("decoding", "training"):
            for node in file.tree.body:
                if isinstance(node, ast.ImportFrom) and node.module == "transformers":
                    wrong.append(str(file.path))
    assert not wrong


def test_folders_of_the_engine_import_only_those_before_them():
    found = house.arrows([file for file in files_of(*PROGRAM) if file.path.parts[0] == "decoding"])
    place = {f"decoding/{folder}": number for number, folder in enumerate(ORDER)}
    assert set(found) - set(ABOVE) <= set(place), "a new folder has no place in the order"
    wrong = [f"{here} -> {there}" for here in place for there in found.get(here, ()) if not place[there] < place[here]]
    assert wrong == []


def test_no_folders_of_the_program_import_one_another_in_a_circle():
    assert house.circles(house.arrows(files_of(*PROGRAM))) == []


def test_a_circle_is_found():
    def source(path, text):
        return house.SourceFile(Path(path), text)

    one, other = source("a/x.py", "from b.y import f"), source("b/y.py", "def f():\n    import a.x")
    assert house.circles(house.arrows([one, other])) == [["a", "b"]]
    named = source("b/y.py", "STARTED = 'a.x'")
    assert house.circles(house.arrows([one, named])) == [["a", "b"]]
    begun = source("b/y.py", "def start(name):\n    return f'{name} of a.x', f'a.{name}'")
    assert house.circles(house.arrows([one, begun, source("a/__init__.py", "")])) == [["a", "b"]]
    of_itself = source("b/y.py", "def start(name):\n    return f'{__package__}.{name}', f'{__name__}.{name}'")
    assert house.arrows([of_itself, source("b/__init__.py", "")], between_folders=False) == {"b.y": {"b"}}
    assert house.circles(house.arrows([one, source("b/y.py", "import c.z")])) == []


@pytest.mark.slow
def test_an_import_in_a_function_spares_those_who_load_the_file_a_package():
    def source(path, text):
        return house.SourceFile(Path(path), text)

    late = "def f():\n    import b.y, json"
    assert [*house.late_imports([source("a/x.py", late), source("b/y.py", "import torch, numpy")]).values()] == [
        "torch"
    ]
    early = source("b/x.py", "import torch\n" + late)
    assert [*house.late_imports([early, source("b/y.py", "import torch")]).values()] == ["nothing"]

    rooms = house.ROOMS["the program"]
    needless = [one for one, spared in house.late_imports(files_of(*rooms)).items() if spared == "nothing"]
    assert [one.partition(":")[0] for one in needless] == ["decoding/papers/measured/mask_order.py"]  # the compiler


def test_no_import_against_the_arrows():
    files = [file for file in files_of(*PROGRAM) if file.path.parts[0] != "tests"]
    assert Path("decoding/trace/records.py") in {file.path for file in files}
    assert {line for file in files for line in wrong_imports(file)} == SHOWN


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("decoding/x.py", "import streamlit as st"),
        ("decoding/drafters/x.py", "def f():\n    from viz.scope.scene import Scene"),
        ("decoding/x.py", "from ..pages import ui"),
        ("decoding/x.py", "import importlib\nimportlib.import_module('plotly.graph_objects')"),
        ("viz/x.py", "from decoding import session"),
        ("viz/x.py", "import decoding.session.session"),
        ("viz/x.py", "import decoding"),
        ("viz/x.py", "from decoding.tree.draft import TokenTree"),
        ("viz/x.py", "import torch.nn.functional as F"),
        ("benchmarks/x.py", "import streamlit"),
        ("benchmarks/x.py", "from tests.helpers import traces"),
        ("pages/x.py", "import app"),
        ("pages/x.py", "from benchmarks import house"),
        ("decoding/x.py", "STARTED = 'benchmarks.sweep'"),
        ("decoding/x.py", "def start(name):\n    run('-m', f'benchmarks.{name}')"),
        ("decoding/x.py", "print('first run python -m benchmarks.sweep')"),
        ("viz/x.py", "LATE = 'decoding.session.session'"),
    ],
)
def test_a_wrong_import_is_found(path: str, source: str):
    assert wrong_imports(house.SourceFile(Path(path), source))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "viz/x.py",
            "from decoding.trace.records import RunTrace\nfrom decoding.trace import tables\nfrom .theme import X",
        ),
        (
            "pages/ui/x.py",
            "import streamlit\nfrom decoding.session.session import DecodeSession\nfrom viz import scene",
        ),
        ("decoding/drafters/x.py", "import torch\nfrom .base import Drafter\nfrom ..trace import NodeTrace"),
        ("app.py", "import streamlit\nfrom pages.ui import setup"),
        ("decoding/x.py", "file = 'benchmarks.csv'\nprint('python -m decoding.record')"),
    ],
)
def test_a_right_import_passes(path: str, source: str):
    assert wrong_imports(house.SourceFile(Path(path), source)) == []


def loaded_by(modules: list[str]) -> set[str]:
    """Heavy packages in memory after a fresh interpreter has imported `modules`."""
    code = f"import {', '.join(modules)}, sys; print(*(m for m in sys.modules if '.' not in m))"
    return set(printed(code).split()) & {"torch", "transformers", "streamlit", "plotly"}


def test_a_recorded_run_opens_and_is_judged_without_torch():
    assert loaded_by(list(TORCH_FREE)) == set()


def test_the_front_door_gives_what_it_names():
    assert set(decoding.__all__) == set(decoding.HOMES)
    for name, home in decoding.HOMES.items():
        assert getattr(decoding, name) is getattr(import_module(home), name)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        decoding.Nothing  # noqa: B018


def test_figures_load_without_torch_and_streamlit():
    assert loaded_by([file.module for file in files_of("viz/")]) <= {"plotly"}
