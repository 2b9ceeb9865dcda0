"""axe-core in the browser: what keeps a page from being read or worked without eyes or mouse."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.browser_app import ROOT

VERSION = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))["devDependencies"]["axe-core"]
PACKAGE = ROOT / "node_modules" / "axe-core"
GRAVE = ("serious", "critical")

# Streamlit's own elements that no setting and no style of ours reaches: rule, selector, why.
STREAMLITS_OWN: tuple[tuple[str, str, str], ...] = ()

# Runs the rules and leaves out the elements above. A target in a shadow root is a list of selectors, one per root.
SCRIPT = """
async ([impacts, known, within, rules]) => {
  const options = rules ? { runOnly: rules } : {};
  const result = await axe.run(within || document, { resultTypes: ["violations"], ...options });
  const inside = (root, one) => (root.shadowRoot || root).querySelector(one);
  const find = (target) => [].concat(target).reduce(inside, document);
  const ours = (rule, node) => {
    const element = find(node.target[0]);
    return !known.some(([id, selector]) => id === rule && element && element.matches(selector));
  };
  return result.violations
    .filter((rule) => impacts.includes(rule.impact))
    .flatMap((rule) => rule.nodes.filter((node) => ours(rule.id, node)).map((node) => ({
      rule: rule.id, target: node.target.flat().join(" >> "), html: node.html, why: node.failureSummary,
    })));
}
"""


LOOKS, PAUSE_MS = 2, 700
# Nothing fades or slides; what turns for ever does not end.
STILL = """
() => document.getAnimations().every(
  (one) => one.playState !== "running" || one.effect.getComputedTiming().iterations === Infinity)
"""


@dataclass(frozen=True)
class Violation:
    """One element that breaks a rule."""

    place: str
    rule: str
    target: str
    html: str
    why: str

    def __str__(self) -> str:
        lines = (f"{self.place}: {self.rule}", self.target[-160:], self.html[:200], " ".join(self.why.split())[:300])
        return "\n  ".join(lines)


def axe_script() -> str:
    """Source of axe-core at the pinned version; fetched with npm where it is not there yet.

    Skips the test without npm, or fails it where browser tests are required.
    """
    if not _is_there() and shutil.which("npm"):
        subprocess.run(["npm", "install", "--no-package-lock"], cwd=ROOT, capture_output=True, check=False, timeout=120)
    if not _is_there():
        missing = f"no axe-core {VERSION}: run 'npm install --no-package-lock'"
        if os.environ.get("DRAFTSCOPE_REQUIRE_BROWSER") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    return (PACKAGE / "axe.min.js").read_text(encoding="utf-8")


def violations(page, place: str, within: str | None = None, rules: tuple[str, ...] | None = None) -> list[Violation]:
    """Serious and critical violations of some `rules` or all, on a page or `within` a selector; `place` names it.

    What is found is looked for again a little later: a page that is drawn anew has other colours on the way there.
    """
    page.mouse.move(0, 0)  # an element under the pointer has other colours
    found = _violations(page, place, within, rules)
    for _ in range(LOOKS if found else 0):
        page.wait_for_timeout(PAUSE_MS)
        again = _violations(page, place, within, rules)
        found = [each for each in again if (each.rule, each.target) in {(old.rule, old.target) for old in found}]
    return found


def _violations(page, place: str, within: str | None, rules: tuple[str, ...] | None) -> list[Violation]:
    page.wait_for_function(STILL)
    found = page.evaluate(SCRIPT, [GRAVE, [entry[:2] for entry in STREAMLITS_OWN], within, rules])
    return [Violation(place, **each) for each in found]


def _is_there() -> bool:
    package = Path(PACKAGE / "package.json")
    return package.is_file() and json.loads(package.read_text(encoding="utf-8"))["version"] == VERSION
