"""`python -m decoding.export_config RUN --engine NAME`: a run's method as an engine's configuration. Needs no torch.

Exit code 0: the configuration was written; 1: the run drafted nothing, so there is none; 2: the run cannot be read or
there is no such engine.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from decoding.common.errors import command
from decoding.trace.engine_config import EngineConfig, engine_config
from decoding.trace.engine_fields import ENGINES
from decoding.trace.run_file import load_run


def config_lines(config: EngineConfig) -> list[str]:
    """What to paste, with everything else as comments around it, in the language of the text."""
    lines = [config.text]
    if config.load_test:
        lines += [
            "",
            "# Load test with the acceptance of this run; its output is not the target's text",
            config.load_test,
        ]
    return [*lines, "", *(f"# {line}" for line in remark_lines(config))]


def remark_lines(config: EngineConfig) -> Iterator[str]:
    """What the engine cannot do, what to know of its fields, and where their names were read."""
    yield from (f"Not the same: {limit}" for limit in config.limits)
    yield from config.notes
    yield f"{config.engine} {config.version}: names read on {config.read} in {', '.join(config.sources)}."


@command
def main(arguments: list[str] | None = None) -> int:
    """Print the configuration; the code is 0, 1 or 2 as the module says."""
    parser = argparse.ArgumentParser(
        prog="python -m decoding.export_config", description="Write a run's method as the configuration of an engine."
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run saved with Draftscope")
    parser.add_argument("--engine", required=True, metavar="NAME", help=f"one of {', '.join(ENGINES)}")
    parser.add_argument("--json", action="store_true", help="write everything as one JSON object")
    args = parser.parse_args(arguments)
    config = engine_config(load_run(args.run), args.engine)
    if args.json:
        print(json.dumps(asdict(config), indent=2))
    elif not config.text:
        print(*config.limits)
    elif config.language == "json":  # it has no comments
        print(config.text)
        print(*remark_lines(config), sep="\n", file=sys.stderr)
    else:
        print(*config_lines(config), sep="\n")
    return 0 if config.text else 1


if __name__ == "__main__":
    sys.exit(main())
