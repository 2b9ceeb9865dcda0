"""The command `draftscope`: it hands its arguments on to modules that can also be run by themselves.

Nothing imported here may import torch: the help is there at once.
"""

import ast
import re
import runpy
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from decoding.common.errors import DraftscopeError, command
from decoding.common.files import ROOT

# What each runs, the words in front of a person's, and what it does.
COMMANDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "run": ("streamlit", ("run", str(ROOT / "app.py")), "open the app in a browser; takes what `streamlit run` takes"),
    "record": ("decoding.record", (), "decode a prompt and save the run to a file"),
    "diff": ("decoding.diff", (), "say where two saved runs part"),
    "export": ("decoding.export_config", (), "write a run's method as the configuration of an engine"),
    "import-metrics": ("decoding.import_metrics", (), "say what an engine's figures mean for its speculative decoding"),
    "roofline": ("decoding.roofline", (), "model at which batch size speculation stops paying on an accelerator"),
    "doctor": ("decoding.doctor", (), "say what lowers the acceptance of a pair, with evidence and what to do"),
    "recycle": ("decoding.recycle", (), "keep a matrix for token recycling, made from a folder of prompts"),
    "widen": ("decoding.widen", (), "write a pair with the shapes of a large one, widened from the embedded pair"),
    "sweep": ("decoding.experiments.sweep", (), "run a grid of methods and settings"),
    "gallery": ("pages.ui.gallery", (), "write the recorded runs as static pages"),
}
# Those that choose one module of a package: the package, the word for the choice, and what they do.
FAMILIES: dict[str, tuple[str, str, str]] = {
    "bench": ("benchmarks", "NAME", "measure or prove something; without a name it lists what there is"),
    "train": ("decoding.training", "KIND", "train models; without a kind it lists what there is"),
}
HELP, VERSION = ("-h", "--help"), "--version"
RUNS = '__name__ == "__main__"'
HOW = re.compile(r":? ?`python -m [^`]*`:? ?")  # docstrings name the module's own command


def members(package: str) -> dict[str, str]:
    """The modules of a package that can be run, by name, and the sentence that says what each does."""
    folder, found = ROOT / package.replace(".", "/"), {}
    for file in sorted([*folder.glob("*.py"), *folder.glob("*/__main__.py")]):
        text = file.read_text(encoding="utf-8")
        if RUNS in text:
            purpose = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
            found[file.parent.name if file.stem == "__main__" else file.stem] = HOW.sub("", purpose).rstrip(".")
    return found


def usage() -> str:
    """What there is, in plain English."""
    lines = {f"{name} ...": purpose for name, (_, _, purpose) in COMMANDS.items()}
    lines |= {f"{name} {word} ...": purpose for name, (_, word, purpose) in FAMILIES.items()}
    return "\n".join(
        [
            "usage: draftscope COMMAND ...\n\nA microscope for tree speculative decoding.\n",
            listing(lines),
            "\n`draftscope COMMAND --help` says what a command takes, `draftscope --version` which version this is.",
        ]
    )


def listing(purposes: Mapping[str, str]) -> str:
    """Names and what each does, in two columns."""
    width = max(map(len, purposes))
    return "\n".join(f"  {name:{width}}  {purpose}" for name, purpose in purposes.items())


def installed() -> str:
    """The version that is installed."""
    try:
        return version("draftscope")
    except PackageNotFoundError:
        return "not installed: this is a checkout"


def check(name: str, there: Mapping[str, object], whose: str) -> None:
    """Raise `DraftscopeError`, which lists what there is, where a name is none of it."""
    if name not in there:
        raise DraftscopeError(f"There is no `{whose} {name}`: choose one of {', '.join(there)}.")


@command
def main() -> int:
    """Run what the command line asks for."""
    name, *rest = sys.argv[1:] or HELP[-1:]
    if name in HELP or name == VERSION:
        print(usage() if name in HELP else f"draftscope {installed()}")
        return 0
    check(name, COMMANDS | FAMILIES, "draftscope")
    if name in COMMANDS:
        module, words, _ = COMMANDS[name]
        rest = [*words, *rest]
    else:
        package, word, _ = FAMILIES[name]
        there = members(package)
        if not rest or rest[0] in HELP:
            print(f"usage: draftscope {name} {word} ...\n\n{listing(there)}")
            return 0
        check(rest[0], there, f"draftscope {name}")
        module, rest = f"{package}.{rest[0]}", rest[1:]
    sys.argv[1:] = rest
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
