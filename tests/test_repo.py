"""What must hold for the repository itself: its size, its pins, its careful settings."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from draftscope import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
MAX_TREE_BYTES = 40_000_000
REQUIREMENTS = ("requirements.txt", "requirements-dev.txt")
PIN = re.compile(r"[a-z0-9-]+==\d+(\.\d+)+")


def tracked_files() -> list[Path]:
    answer = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if answer.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in answer.stdout.split("\0") if name]


def test_tracked_tree_is_small():
    sizes = {path: path.stat().st_size for path in tracked_files() if path.is_file()}
    largest = sorted(sizes, key=sizes.get, reverse=True)[:3]
    assert sum(sizes.values()) < MAX_TREE_BYTES, f"largest: {[str(path.relative_to(ROOT)) for path in largest]}"


@pytest.mark.parametrize("file", REQUIREMENTS)
def test_requirements_are_exact_pins_with_a_purpose(file: str):
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line.strip() and not line.startswith("#")]
    assert pins
    for line in pins:
        requirement, _, purpose = line.partition("#")
        assert PIN.fullmatch(requirement.strip()), f"not an exact pin: {line}"
        assert purpose.strip(), f"no purpose: {line}"


@pytest.mark.parametrize("file", REQUIREMENTS)
def test_installed_versions_are_the_pinned_ones(file: str):
    from importlib.metadata import version

    for name, wanted in re.findall(r"^([a-z0-9-]+)==([\d.]+)", (ROOT / file).read_text(), re.MULTILINE):
        assert version(name).split("+")[0] == wanted, name


def test_what_the_workflow_runs_is_there():
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    steps = [step for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
    commands = "\n".join(step.get("run", "") for step in steps)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"check", "test"} <= set(re.findall(r"\bmake (\w+)", commands)) <= targets
    named = re.findall(r"\b(?:tests/[\w/.]+|requirements\S*\.txt)", commands)
    assert len(named) > 3
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert {words[1] for words in re.findall(r"^(draftscope) (\w+)", commands, re.MULTILINE)} <= set(COMMANDS)


def test_the_citation_names_what_the_package_names():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["license"] == project["license"]
    assert "version" not in citation, "it is in pyproject.toml alone"


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("server", "address", "127.0.0.1"),
        ("server", "allowedHosts", ["localhost", "127.0.0.1"]),
        ("server", "enableCORS", True),
        ("server", "enableXsrfProtection", True),
        ("server", "showEmailPrompt", False),
        ("server", "fileWatcherType", "none"),
        ("browser", "gatherUsageStats", False),
        ("client", "toolbarMode", "viewer"),
        ("client", "showErrorDetails", "type"),
        ("client", "showSidebarNavigation", False),
    ],
)
def test_careful_settings_of_the_app(section: str, key: str, value: object):
    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert config[section][key] == value


def test_every_setting_is_known_to_streamlit():
    from streamlit import config as streamlit_config

    known = set(streamlit_config.get_config_options())

    def names(table: dict, prefix: str = "") -> list[str]:
        nested = [names(v, f"{prefix}{k}.") if isinstance(v, dict) else [f"{prefix}{k}"] for k, v in table.items()]
        return [name for group in nested for name in group]

    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert set(names(config)) <= known


def test_weights_are_safetensors_only():
    assert not [path for path in tracked_files() if path.suffix in {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"}]
