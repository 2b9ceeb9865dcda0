"""How the code is built: files, lines and functions by room, circles of imports, imports in functions, names twice.

Read from the syntax trees alone; imports are counted wherever they stand, also in functions, under TYPE_CHECKING, and
as names of modules in strings, of f-strings what they begin with. An import in a function is listed with the package
that the file would else load at once, torch before all others. Exits 1 where folders import one another in a circle.
"""

import argparse
import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean, median

import networkx

ROOT = Path(__file__).resolve().parents[1]
# What is counted together; a room ends with / or is a file.
ROOMS = {
    "the program": ("decoding/", "viz/", "pages/", "app.py", "draftscope.py"),
    "benchmarks": ("benchmarks/",),
    "tests": ("tests/",),
}
Arrows = dict[str, set[str]]


@dataclass(frozen=True)
class SourceFile:
    """A file of the repository, by its path there."""

    path: Path
    text: str

    @property
    def module(self) -> str:
        """Its dotted name."""
        return ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")

    @property
    def folder(self) -> str:
        """The folder it lies in."""
        return str(self.path.parent)

    @property
    def lines(self) -> int:
        """How long it is."""
        return len(self.text.splitlines())

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree."""
        return list(ast.walk(self.tree))

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """All functions and methods, also those inside others."""
        return (node for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))

    def imported(self, tree: ast.AST | None = None) -> set[str]:
        """Dotted names imported anywhere below a node; `from a import b` gives a.b, which may be no module."""
        package = list(self.path.parent.parts)
        names: set[str] = set()
        for node in self.nodes if tree is None else ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                names |= {f"{base}.{alias.name}" if base else alias.name for alias in node.names}
        return names

    def strings(self) -> set[str]:
        """Texts with a dot, some of which name modules; of f-strings also what they begin with."""
        texts = [node.value for node in self.nodes if isinstance(node, ast.Constant)]
        texts += [self._beginning(node) for node in self.nodes if isinstance(node, ast.JoinedStr)]
        return {text for text in texts if isinstance(text, str) and "." in text and text.isprintable()}

    def _beginning(self, node: ast.JoinedStr) -> str:
        """What an f-string says before the first value that only running tells; names of this module are known."""
        package = self.module if self.path.stem == "__init__" else self.module.rpartition(".")[0]
        known, text = {"__name__": self.module, "__package__": package}, ""
        for part in node.values:
            said = part.value if isinstance(part, ast.Constant) else known.get(ast.unparse(part.value))
            if said is None:
                break
            text += said
        return text

    def named(self, modules: Container[str]) -> set[str]:
        """Those of some modules that stand in strings by themselves: `a.b`, and `a` of an f-string `a.{b}`."""
        return {name for text in self.strings() for name in [text.removesuffix(".")] if name in modules}


def sources(rooms: Sequence[str]) -> list[SourceFile]:
    """The Python files of some rooms, in order."""
    files = [
        file for room in rooms for file in (sorted((ROOT / room).rglob("*.py")) if room[-1] == "/" else [ROOT / room])
    ]
    return [SourceFile(file.relative_to(ROOT), file.read_text(encoding="utf-8")) for file in files]


def arrows(files: Sequence[SourceFile], between_folders: bool = True) -> Arrows:
    """Which folders, or modules, use which others, by imports and by names of modules in strings."""
    by_module = {file.module: file for file in files}
    found: Arrows = defaultdict(set)
    for file in files:
        for name in file.imported() | file.named(by_module):
            used = by_module.get(name) or by_module.get(name.rpartition(".")[0])
            if used is not None and used is not file:
                here, there = (file.folder, used.folder) if between_folders else (file.module, used.module)
                if here != there:
                    found[here].add(there)
    return found


def circles(found: Arrows) -> list[list[str]]:
    """Knots of names that reach one another, the largest first."""
    graph = networkx.DiGraph((here, there) for here, others in found.items() for there in others)
    knots = [sorted(knot) for knot in networkx.strongly_connected_components(graph) if len(knot) > 1]
    return sorted(knots, key=lambda knot: (-len(knot), knot))


def _at_once(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that run when a module is loaded."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from (each for branch in node.orelse for each in _at_once(branch))
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _at_once(node)


def late_imports(files: Sequence[SourceFile]) -> dict[str, str]:
    """Each import in a function, and what it spares those who load the file: a package, or `nothing`."""
    modules = {file.module for file in files}

    def loaded(names: set[str]) -> set[str]:
        """Modules, with the packages around them, and packages of others that some dotted names load."""
        found = set()
        for parts in (name.split(".") for name in names):
            own = {".".join(parts[:count]) for count in range(1, len(parts) + 1)} & modules
            found |= own or {parts[0]}
        return found

    loads = networkx.DiGraph()
    for file in files:
        loads.add_node(file.module)
        loads.add_edges_from(
            (file.module, name) for node in _at_once(file.tree) for name in loaded(file.imported(node))
        )
    below = {name: networkx.descendants(loads, name) | {name} for name in loads}
    late = {}
    for file in files:
        for node in (node for function in file.functions() for node in ast.walk(function)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = loaded(file.imported(node))
                more = set().union(*(below.get(name, {name}) for name in names)) - below[file.module]
                spared = sorted(more - modules - sys.stdlib_module_names, key=lambda name: (name != "torch", name))
                late[f"{file.path}:{node.lineno} {', '.join(sorted(file.imported(node)))}"] = (*spared, "nothing")[0]
    return late


def main(argv: Sequence[str] | None = None) -> int:
    """Count and print; 1 where there is a circle."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--list", action="store_true", help="also each import in a function and each name that is twice"
    )
    args = parser.parse_args(argv)
    found = {name: sources(rooms) for name, rooms in ROOMS.items()}
    print(f"{'':12} {'files':>6} {'lines':>7} {'median lines a file':>20} {'mean lines a function':>22}")
    for name, files in found.items():
        lengths = [node.end_lineno - node.lineno + 1 for file in files for node in file.functions()]
        lines = [file.lines for file in files]
        print(f"{name:12} {len(files):6} {sum(lines):7,} {median(lines):20.0f} {mean(lengths):22.1f}")
    program, everything = found["the program"], [file for files in found.values() for file in files]
    late, classes = late_imports(program), defaultdict(list)
    for file in program:
        classes_here = [node for node in file.tree.body if isinstance(node, ast.ClassDef)]
        for node in classes_here:
            classes[node.name].append(str(file.path))
    twice = {name: places for name, places in sorted(classes.items()) if len(places) > 1}
    knots = circles(arrows(everything))
    modules = circles(arrows(everything, between_folders=False))
    print(f"\ncircles between folders: {len(knots)}, of files: {len(modules)}")
    for knot in [*knots, *modules]:
        print(f"  {len(knot)}: {', '.join(knot)}")
    spared = ", ".join(f"{name} {count}" for name, count in Counter(late.values()).most_common())
    print(f"imports in functions: {len(late)}, by what they spare those who load the file: {spared}")
    print(f"class names that stand twice: {len(twice)}")
    if args.list:
        print("\n".join(f"{one} ({why})" for one, why in sorted(late.items())))
        print("\n".join(f"{name}: {', '.join(places)}" for name, places in twice.items()))
    return 1 if knots else 0


if __name__ == "__main__":
    sys.exit(main())
