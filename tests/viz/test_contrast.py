"""Text stands out from its background at 4.5:1 and graphics at 3:1, in both themes (WCAG 2.2, 1.4.3 and 1.4.11)."""

import re
import tomllib
from pathlib import Path

import pytest

from viz.theme import DARK, LIGHT, MARKS, PAPER, PHASE_COLORS, SERIES, contrast, mixed, outline

ROOT = Path(__file__).resolve().parents[2]
THEME = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))["theme"]
STYLES = sorted((ROOT / "viz").rglob("*.css"))
TEXT, GRAPHICS = 4.5, 3.0
CAPTION_SHARE = 0.6  # Streamlit draws captions in this share of the text colour
themes = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])


def page(dark: bool) -> dict[str, str]:
    """Text, background and raised background of a theme as Streamlit hands them to the page and its components."""
    chosen = THEME["dark" if dark else "light"]
    return {
        "text": chosen["textColor"],
        "paper": chosen["backgroundColor"],
        "raised": chosen["secondaryBackgroundColor"],
        "primary": chosen["primaryColor"],
        "link": chosen["linkColor"],
    }


def resolved(value: str, known: dict[str, str]) -> str | None:
    """A CSS colour as `#RRGGBB`: hex, `var(--name)` of a known name, or a `color-mix` of such; None for others."""
    value = value.strip()
    if re.fullmatch(r"#[0-9A-Fa-f]{6}", value):
        return value.upper()
    if named := re.fullmatch(r"var\(--([a-z-]+)(?:,.*)?\)", value):
        return known.get(named[1])
    mix = re.fullmatch(r"color-mix\(in srgb, (\S+|var\([^)]*\)) (\d+)%, (\S+|var\([^)]*\))\)", value)
    if mix is None:
        return None
    first, second = resolved(mix[1], known), resolved(mix[3], known)
    return mixed(first, second, int(mix[2]) / 100) if first and second else None


def variables(style: str, dark: bool) -> dict[str, str]:
    """The colour variables of a style sheet in a theme."""
    colors = page(dark)
    known = {"st-text-color": colors["text"], "st-background-color": colors["paper"], "text": colors["text"]}
    known |= {"st-secondary-background-color": colors["raised"], "st-primary-color": colors["primary"]}
    for name, value in re.findall(r"--([a-z-]+):\s*([^;]+);", style):
        color = resolved(value, known)
        if color is not None:
            known[name] = color
    return known


def test_ratios_are_those_of_the_standard():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.005)
    assert contrast("#009E73", "#FFFFFF") == pytest.approx(3.42, abs=0.005)
    assert mixed("#FF0000", "#0000FF", 0.25) == "#4000BF"


@themes
def test_words_of_the_app(dark):
    colors = page(dark)
    for background in (colors["paper"], colors["raised"]):
        assert contrast(colors["text"], background) >= TEXT
        assert contrast(colors["link"], background) >= TEXT
    caption = mixed(colors["text"], colors["paper"], CAPTION_SHARE)
    assert contrast(caption, colors["paper"]) >= TEXT
    # Values of sliders and the chosen segment are written in the primary colour.
    assert contrast(colors["primary"], colors["paper"]) >= TEXT


def test_primary_buttons_are_white_on_dark_green_in_both_themes():
    style = (ROOT / "pages" / "ui" / "app" / "setup.css").read_text(encoding="utf-8")
    rule = re.search(r"stBaseButton-primary\][^{]*\{ background: (#\w{6});[^}]* color: (#\w{6});", style)
    assert rule is not None
    assert contrast(rule[1], rule[2]) >= TEXT
    assert all(contrast(rule[1], page(dark)["paper"]) >= GRAPHICS for dark in (False, True))


@themes
def test_words_and_lines_of_the_charts(dark):
    colors, paper = DARK if dark else LIGHT, page(dark)["paper"]
    assert PAPER[dark] == paper
    for background in (paper, colors.surface):
        assert contrast(colors.text, background) >= TEXT
        assert contrast(colors.muted, background) >= TEXT
        assert contrast(colors.select, background) >= GRAPHICS
    for color in (*SERIES, *PHASE_COLORS.values()):
        assert contrast(color, paper) >= GRAPHICS, color


@themes
def test_every_mark_has_an_outline_that_stands_out(dark):
    paper = page(dark)["paper"]
    for state, mark in MARKS.items():
        assert contrast(outline(mark.color, dark), paper) >= GRAPHICS, state
        if state != "bonus":
            assert outline(mark.color, dark) == mark.color, f"{state} needs an outline of its own"


@themes
@pytest.mark.parametrize("path", STYLES, ids=lambda path: path.name)
def test_words_of_the_style_sheets(path, dark):
    """Colours of text by their variables: on the page, and on the background of the same rule where it has one."""
    style = path.read_text(encoding="utf-8")
    known = variables((ROOT / "viz" / "components" / "base.css").read_text(encoding="utf-8"), dark)
    known |= variables(style, dark)
    grounds: dict[str, str] = {}
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)):
        words = re.search(r"(?:^|[;\s])color:\s*([^;]+);", body)
        ground = re.search(r"(?:^|[;\s])background(?:-color)?:\s*([^;]+);", body)
        color = resolved(words[1], known) if words else None
        selector = selectors.strip()
        if behind := resolved(ground[1], known) if ground else None:
            grounds[selector] = behind
        else:  # that of the element it lies in, where the style sheet says so
            behind = next((grounds[outer] for outer in grounds if selector.startswith(f"{outer} ")), None)
        behind = behind or page(dark)["paper"]
        if color is not None:
            ratio = contrast(color, behind)
            assert ratio >= TEXT, f"{path.name}, {selector}: {color} on {behind} is {ratio:.2f}:1"


@themes
def test_lines_of_the_components(dark):
    colors = page(dark)
    known = variables((ROOT / "viz" / "components" / "base.css").read_text(encoding="utf-8"), dark)
    names = ("accepted", "rejected", "recovered-line", "bonus-line", "fallback", "draft", "grey", "select", "second")
    for ground in (colors["paper"], mixed(colors["raised"], colors["paper"], 0.55)):  # that of their panels
        for name in names:
            assert contrast(known[name], ground) >= GRAPHICS, name


@themes
@pytest.mark.parametrize(("file", "names"), [("verify/table.css", ("blue", "bar")), ("branches/graph.css", ("a", "b"))])
def test_bars_and_lines_of_one_component(file, names, dark):
    colors = page(dark)
    shared = (ROOT / "viz" / "components" / "base.css").read_text(encoding="utf-8")
    known = variables(shared + (ROOT / "viz" / file).read_text(encoding="utf-8"), dark)
    for name in names:
        assert contrast(known[name], mixed(colors["raised"], colors["paper"], 0.55)) >= GRAPHICS, name
