"""`python -m benchmarks.reference`: write the reference tables of docs/methods.md and docs/files.md from the code.

Methods, drafters, verifiers and their settings come from the registries, the fields of a run file from
`decoding/trace/records.py` and its comments. `--check` writes nothing and ends with code 1 where one is not current.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.markdown import between, table, write_page
from decoding.common.files import ROOT
from decoding.common.settings import SettingInfo, settings_of
from decoding.drafters import DRAFTERS
from decoding.methods.method import Method
from decoding.methods.methods import FORMER_PRESETS, METHODS, PRESETS
from decoding.sampling.sampling import Sampling
from decoding.verifiers import VERIFIERS

RECORDS = ROOT / "decoding" / "trace" / "records.py"
GROUP = re.compile(r"((?:\w+, )+\w+): ")  # a comment on several fields begins with their names
SAMPLED = Sampling(temperature=1.0)


def methods_table() -> str:
    """Every method: what it does, what drafts and verifies by default, where it comes from."""
    drafters = {kind: name for name, kind in DRAFTERS.items()}
    rows = [
        (f"`{name}`", method.label, method.summary, f"`{drafters[type(method.drafter)]}`", f"`{method.verifier.name}`",
         method.drafter.cost if method.drafter.drafts else "no draft forward", method.paper)
        for name, method in METHODS.items()
    ]  # fmt: skip
    return table(("name", "label", "what it does", "drafter", "verifier", "cost", "where it comes from"), rows)


def presets_table() -> str:
    """The configurations that the papers report, and what each sets."""
    rows = []
    for name, method in PRESETS.items():
        if name in FORMER_PRESETS:
            continue
        usual = METHODS[method.name].settings()
        changed = {key: value for key, value in method.settings().items() if usual.get(key) != value}
        rows.append((name, f"`{method.name}`", ", ".join(f"{key} {value}" for key, value in changed.items()) or "–"))
    return table(("configuration", "method", "what differs from its defaults"), rows)


def verifiers_table() -> str:
    """Every verifier: what it does, on which trees it is lossless, where it comes from."""
    from decoding.verifiers.base import SAMPLING_TEXT

    rows = []
    for name, kind in VERIFIERS.items():
        fits = [words for probs, words in SAMPLING_TEXT.items() if kind().refusal(probs, SAMPLED) is None]
        trees = "; ".join(words.removeprefix("trees of ") for words in fits) or "every tree, at temperature 0 alone"
        rows.append((f"`{name}`", kind.label, kind.summary, trees, kind.paper))
    return table(("name", "label", "what it does", "lossless on", "where it comes from"), rows)


def settings_tables() -> str:
    """The settings of every drafter and verifier that has any, and those that every method has."""
    blocks = []
    owners: list[tuple[str, Mapping[str, SettingInfo]]] = [
        *((f"Drafter `{name}`", settings_of(kind)) for name, kind in DRAFTERS.items()),
        *((f"Verifier `{name}`", settings_of(kind)) for name, kind in VERIFIERS.items()),
        ("Every method", settings_of(Method)),
    ]
    for heading, infos in owners:
        rows = [_setting_row(info) for info in infos.values()]
        if rows:
            blocks.append(f"### {heading}\n\n{table(('setting', 'symbol', 'default', 'accepted', 'meaning'), rows)}")
    return "\n\n".join(blocks)


def _setting_row(info: SettingInfo) -> tuple[str, ...]:
    accepted = str(info.accepted) if info.accepted else ", ".join(info.choices or ()) or "–"
    if isinstance(info.default, bool):
        accepted = "on, off"
    default = {True: "on", False: "off"}[info.default] if isinstance(info.default, bool) else str(info.default)
    default = info.default.name if hasattr(info.default, "name") else default
    source = f" (default: {info.paper}{', its code' if info.in_code else ''})" if info.paper else ""
    return f"`{info.name}`", info.symbol, default or "empty", accepted, f"{info.label}. {info.help}{source}"


def records_tables() -> str:
    """Every record of a run file, from the outside in, with its fields, types and what they mean."""
    source = RECORDS.read_text(encoding="utf-8")
    kinds = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    comments = _comments(source)
    blocks = []
    for kind in reversed(kinds):
        fields = [node for node in kind.body if isinstance(node, ast.AnnAssign)]
        about = " ".join((ast.get_docstring(kind) or "").split())
        rows, before = [], kind.lineno
        shared: dict[str, str] = {}
        for node in fields:
            said = " ".join(comments[line] for line in range(before + 1, node.end_lineno + 1) if line in comments)
            if group := GROUP.match(said):
                shared |= dict.fromkeys(group[1].split(", "), said[group.end() :])
            name, before = node.target.id, node.end_lineno
            default = f" = {ast.unparse(node.value)}" if node.value is not None else ""
            rows.append((f"`{name}`", f"`{_plain(ast.unparse(node.annotation))}{default}`", shared.get(name, said)))
        blocks.append(f"### {kind.name}\n\n{about}\n\n{table(('field', 'type', 'meaning'), rows)}")
    return "\n\n".join(blocks)


def codes_tables() -> str:
    """What the codes in a record can be, with the comment above each."""
    source = RECORDS.read_text(encoding="utf-8")
    comments, lines, rows = _comments(source), source.splitlines(), []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Literal["):
            first = node.lineno - 1
            while first in comments and lines[first - 1].startswith("#"):
                first -= 1
            said = " ".join(comments[line] for line in range(first + 1, node.lineno))
            values = ", ".join(f"`{each.value}`" for each in ast.walk(node.value) if isinstance(each, ast.Constant))
            rows.append((f"`{node.targets[0].id}`", values, said))
    return table(("code", "values", "meaning"), rows)


def _plain(annotation: str) -> str:
    """A type without its bounds: `Annotated[int, Meta(ge=0)]` is an int."""
    while (start := annotation.find("Annotated[")) >= 0:
        depth, comma, end = 0, None, None
        for place in range(start + len("Annotated"), len(annotation)):
            depth += (annotation[place] in "[(") - (annotation[place] in "])")
            comma = place if comma is None and depth == 1 and annotation[place] == "," else comma
            if depth == 0:
                end = place
                break
        annotation = annotation[:start] + annotation[start + len("Annotated[") : comma] + annotation[end + 1 :]
    return annotation


def _comments(source: str) -> dict[int, str]:
    """Comments by line, those to the formatter left out."""
    found = tokenize.generate_tokens(io.StringIO(source).readline)
    said = ((token.start[0], token.string.lstrip("# ")) for token in found if token.type == tokenize.COMMENT)
    return {line: words for line, words in said if not words.startswith("fmt:")}


WRITTEN: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "docs/methods.md": {
        "methods": methods_table,
        "verifiers": verifiers_table,
        "settings": settings_tables,
        "configurations": presets_table,
    },
    "docs/files.md": {"records": records_tables, "codes": codes_tables},
}


def rewritten(text: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """A page with each of its tables written anew.

    Raises:
        ValueError: the marks of a table are not there once each, in order.
    """
    for name, make in parts.items():
        begin, end = f"<!-- {name}: written by python -m benchmarks.reference -->", f"<!-- {name}: end -->"
        text = between(text, begin, end, make())
    return text


def outdated(root: Path = ROOT) -> dict[Path, str]:
    """Pages whose tables are not current, with what they should hold."""
    pages = {root / name: parts for name, parts in WRITTEN.items()}
    wanted = {page: rewritten(page.read_text(encoding="utf-8"), parts) for page, parts in pages.items()}
    return {page: text for page, text in wanted.items() if page.read_text(encoding="utf-8") != text}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; end with code 1 if one is not current")
    args = parser.parse_args()
    found = outdated()
    for page, text in found.items():
        print(f"{page.name} {'is not current: run it without --check' if args.check else 'written'}")
        if not args.check:
            write_page(page, text)
    print("" if found else "all tables are current")
    return int(args.check and bool(found))


if __name__ == "__main__":
    sys.exit(main())
