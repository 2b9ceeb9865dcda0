"""Whether the tests notice one changed operator: seeded mutants of `decoding`, each run against tests that cover it.

Needs `pip install coverage pytest-cov`: the suite is run once on a copy of the tree in which every expression that will
be changed notes the test that evaluates it, which costs no more than the suite; its branch coverage is printed too.
Mutants are chosen by the names of their functions and their expressions, not by their files: moved code has the same
ones.
"""

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

import torch

from decoding.common.errors import DraftscopeError, run_main
from decoding.common.files import ROOT
from decoding.experiments.command import arguments, parse_amounts, print_table, save_figures

OTHER = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
PROCESSES = 2
MOST_TESTS, MOST_S = 60, 60.0  # at first, of the tests that cover a mutant; what survives those has to pass all
LEFT_OUT = (".git", ".venv", "node_modules", "scratch", "__pycache__", ".*_cache")  # of the copies of the tree
# Also in the processes that a test starts: they inherit its name and the folder of this module.
NOTES = """
import os
seen = set()
def evaluated(number):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if test and (number, test) not in seen:
        seen.add((number, test))
        with open(os.path.join(os.path.dirname(__file__), "evaluated.txt"), "a") as file:
            file.write(f"{number} {test}\\n")
"""


@dataclass(frozen=True)
class Mutant:
    """One changed operator.

    Attributes:
        function: qualified name inside its file. before, after: the expression. line: of the operator, from 1.
        place: number of the operator among those of the file, in the order of `ast.walk`.
    """

    file: str
    function: str
    before: str
    after: str
    line: int
    place: int


@dataclass(frozen=True)
class MutantResult:
    """What the tests said of a mutant: `caught` by a test, `survived` those that cover it, or `uncovered`."""

    mutant: Mutant
    what: str
    test: str = ""


def operators(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Every node whose operator can be changed, with the qualified name of its function, in a fixed order."""

    def visit(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.JoinedStr):  # Python 3.11 does not say where in the file its expressions stand
                continue
            named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            inner = f"{name}.{child.name}".lstrip(".") if named else name
            if _changeable(child) and name:
                yield name, child
            yield from visit(child, inner)

    yield from visit(tree, "")


def _changeable(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return type(node.ops[0]) in OTHER
    return isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in OTHER


def change(node: ast.AST) -> None:
    """Put another operator in the place of a node's (first) one."""
    if isinstance(node, ast.Compare):
        node.ops[0] = OTHER[type(node.ops[0])]()
    else:
        node.op = OTHER[type(node.op)]()


def mutants(folder: Path, count: int, seed: int) -> list[Mutant]:
    """As many mutants as asked for, at most one of a function, in an order that knows nothing of files."""
    found: dict[str, tuple[str, Mutant]] = {}
    for file in sorted(folder.rglob("*.py")):
        for place, (name, node) in enumerate(operators(ast.parse(file.read_text(encoding="utf-8")))):
            before = ast.unparse(node)
            rank = hashlib.sha256(f"{seed} {name} {before}".encode()).hexdigest()
            if name not in found or rank < found[name][0]:
                line = node.lineno
                change(node)
                mutant = Mutant(str(file.relative_to(folder.parent)), name, before, ast.unparse(node), line, place)
                found[name] = (rank, mutant)
    return [mutant for _, mutant in sorted(found.values(), key=lambda each: each[0])[:count]]


def put(copy: Path, file: str, texts: dict[int, str]) -> None:
    """Write texts in the place of expressions, by their `place`, into a file of a copy of the tree; `{}` in a text is
    the expression.
    """
    whole = (copy / file).read_bytes()
    lines = whole.splitlines(keepends=True)
    nodes = [node for _, node in operators(ast.parse(whole))]
    for place, text in sorted(texts.items(), key=lambda each: -nodes[each[0]].lineno):
        node = nodes[place]
        start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
        end = sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset
        whole = whole[:start] + text.replace("{}", whole[start:end].decode()).encode() + whole[end:]
    (copy / file).write_bytes(whole)


def learn(chosen: list[Mutant], home: Path) -> None:
    """Run the quick tests once with coverage; leaves `report.json`, `tests.xml` and `evaluated.txt` in a folder."""
    copy = home / "tree"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for file in {mutant.file for mutant in chosen}:
        noted = {
            mutant.place: f"(__import__('expressions').evaluated({number}) or ({{}}))"
            for number, mutant in enumerate(chosen)
            if mutant.file == file
        }
        put(copy, file, noted)
    (home / "expressions.py").write_text(NOTES)
    (home / "evaluated.txt").write_text("")
    (home / "coveragerc").write_text(
        "[run]\nbranch = true\nsource = decoding\nrelative_files = true\n"
        f"data_file = {home / '.coverage'}\nconcurrency = thread\n"
        "[report]\nignore_errors = true\n"  # files that a test writes and deletes have no source any more
    )
    command = [
        *(sys.executable, "-m", "pytest", "-n", str(PROCESSES), "--dist", "load", "--no-loadscope-reorder"),
        *(f"--cov-config={home / 'coveragerc'}", "--cov=decoding", "--cov-branch"),
        *(f"--cov-report=json:{home / 'report.json'}", f"--junitxml={home / 'tests.xml'}"),
    ]
    subprocess.run(command, cwd=copy, env={**os.environ, "PYTHONPATH": str(home)}, check=False)


def in_turn(covering: set[str], seconds: dict[str, float]) -> tuple[list[str], list[str]]:
    """The tests that cover a mutant, the quickest first: those within `MOST_TESTS` and `MOST_S`, and all others."""
    tests, total = sorted(covering, key=seconds.__getitem__), 0.0
    for place, test in enumerate(tests):
        total += seconds[test]
        if place == MOST_TESTS or (place and total > MOST_S):
            return tests[:place], tests[place:]
    return tests, []


def judge(mutant: Mutant, covering: tuple[list[str], list[str]], copy: Path) -> MutantResult:
    """Run tests on a copy of the tree that holds the mutant: the quick ones, then all others that cover it."""
    if not covering[0]:
        return MutantResult(mutant, "uncovered")
    file = copy / mutant.file
    sound = file.read_bytes()
    try:
        put(copy, mutant.file, {mutant.place: f"({mutant.after})"})
        for tests in filter(None, covering):
            if failed := _failed(tests, copy):
                return MutantResult(mutant, "caught", failed)
    finally:
        file.write_bytes(sound)
    return MutantResult(mutant, "survived")


def _failed(tests: list[str], copy: Path) -> str:
    """The first of these tests that fails; empty where all pass."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "slow or not slow"]
    try:
        ran = subprocess.run([*command, *tests], cwd=copy, capture_output=True, text=True, timeout=1800, check=False)
    except subprocess.TimeoutExpired:
        return "(hangs)"
    lines = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return "" if ran.returncode == 0 else lines[0].split()[1] if lines else "(does not import)"


def measure(count: int, seed: int, home: Path) -> tuple[list[MutantResult], float, int]:
    """The outcome of each mutant, percent of lines and branches covered, and branches missed."""
    chosen, learned = mutants(ROOT / "decoding", count, seed), home / "mutants.json"
    asked = json.dumps([asdict(each) for each in chosen], indent=1)
    if not learned.exists() or learned.read_text() != asked:  # the notes are by number
        learn(chosen, home)
        learned.write_text(asked)
    totals = json.loads((home / "report.json").read_text())["totals"]
    seconds = {}  # that each test took, by its name in coverage
    for case in ElementTree.parse(home / "tests.xml").iter("testcase"):
        path = case.get("classname", "").replace(".", "/")
        if case.find("failure") is None and case.find("error") is None:  # in a copy, without its history
            seconds[f"{path}.py::{case.get('name', '')}"] = float(case.get("time", 0))
    covering: dict[int, set[str]] = {}  # tests by number of the mutant
    for line in (home / "evaluated.txt").read_text().splitlines():
        number, _, test = line.partition(" ")
        if test in seconds:
            covering.setdefault(int(number), set()).add(test)
    with tempfile.TemporaryDirectory() as place:
        copies = [Path(place) / str(number) for number in range(PROCESSES)]
        for copy in copies:
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
        free = list(copies)

        def one(number: int, mutant: Mutant) -> MutantResult:
            copy = free.pop()
            try:
                outcome = judge(mutant, in_turn(covering.get(number, set()), seconds), copy)
            finally:
                free.append(copy)
            place = f"{mutant.file} {mutant.function}: {mutant.before} -> {mutant.after}"
            print(f"{outcome.what:9} {place} {outcome.test}", flush=True)
            return outcome

        with ThreadPoolExecutor(PROCESSES) as pool:
            outcomes = list(pool.map(one, range(len(chosen)), chosen))
    return outcomes, totals["percent_covered"], totals["missing_branches"]


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=18)
    parser.add_argument("--home", type=Path, metavar="DIR", help="keeps which test covers what for the next run")
    args = parse_amounts(parser, count=(50, 8, "mutants"))
    try:
        import pytest_cov  # noqa: F401
    except ImportError as error:
        raise DraftscopeError("Mutants need coverage: run `pip install coverage pytest-cov` and try again.") from error
    with tempfile.TemporaryDirectory() as place:
        home = (args.home or Path(place)).resolve()
        home.mkdir(parents=True, exist_ok=True)
        outcomes, percent, missed = measure(args.count, args.seed, home)
    kinds = [outcome.what for outcome in outcomes]
    print_table(("outcome", "mutants"), [(kind, kinds.count(kind)) for kind in ("caught", "survived", "uncovered")])
    print(f"coverage of lines and branches of decoding: {percent:.2f} %, {missed} branches missed")
    figures = {"percent_covered": percent, "missing_branches": missed, "mutants": [asdict(each) for each in outcomes]}
    save_figures(args, "mutants", figures, torch.device("cpu"))
    return 0 if set(kinds) == {"caught"} else 1


if __name__ == "__main__":
    run_main(main)
