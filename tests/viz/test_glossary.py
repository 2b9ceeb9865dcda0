"""The glossary: every word that the main pages use as a heading, a legend or a column has a sentence."""

import re
from pathlib import Path
from typing import get_args

import pytest

from decoding.methods.methods import METHODS
from decoding.recorded import home_run
from decoding.trace.records import STOP_REASONS, VERDICTS, FinalKind
from decoding.verifiers import VERIFIERS
from pages.ui.common.errors import known_settings
from viz.glossary import ALIASES, GROUPS, SETTING_TITLES, STATISTIC_WORDS, TERMS, VERIFIER_TITLES, explain_term
from viz.scope.cards import cards
from viz.scope.data import legend
from viz.scope.scene import build_scene
from viz.theme import MARKS, PHASE_WORDS

SCOPE = Path(__file__).resolve().parents[2] / "viz" / "scope"
# Stop reasons that a card writes out as a sentence.
TOLD_IN_SENTENCES = set(STOP_REASONS) - {"depth_gate", "early_stop"}


def panel_heads() -> set[str]:
    """Heads of the scope's panels, read from its scripts."""
    found = set()
    for script in SCOPE.glob("*.js"):
        found |= set(re.findall(r'\bpanel\((?:view, )?parent, "\w+", "([^"]+)"', script.read_text(encoding="utf-8")))
    return found


def shown_words() -> set[str]:
    """Words of the main pages that stand for a concept."""
    run = home_run()
    words = {mark.words for mark in MARKS.values()} | set(PHASE_WORDS.values()) | panel_heads()
    words |= set(VERDICTS) | (set(get_args(FinalKind)) - {"none"}) | (set(STOP_REASONS) - TOLD_IN_SENTENCES)
    for iteration in run.iterations:
        scene = build_scene(iteration, scene_id="x")
        words |= {entry["words"] for entry in legend(scene)}
        words |= {phase.title for phase in scene.phases if not phase.title.startswith("Draft ")}
        words |= {name for card in cards(iteration, scene).values() for name, _ in card["facts"]}
    return words


def test_panels_are_found():
    assert {"Attention mask", "KV slots", "Text", "Time"} <= panel_heads()


@pytest.mark.parametrize("word", sorted(shown_words()))
def test_every_shown_word_is_explained(word):
    assert explain_term(word), f"{word!r} has no entry in viz/glossary.py"


def test_every_column_of_compare_is_explained():
    from decoding.analysis.luck import RunLuck
    from decoding.compare.comparison import Comparison
    from decoding.compare.contestants import parse_contestant
    from pages.ui.compare.results import _rows

    one = Comparison((parse_contestant("autoregressive"),), ("p",), (), (), 0)
    rows = _rows((), one, {0: RunLuck((0,), (1,), (1.0,), (0.0,))})
    titles = {title for title, *_ in rows} - {"Same output as Autoregressive"}
    unexplained = {title for title in titles if not explain_term(title)}
    assert unexplained == set()


def test_terms_are_plain_sentences_in_lower_case():
    for term, sentence in TERMS.items():
        assert term == term.lower().strip()
        assert sentence.endswith(".")
        assert len(sentence) < 200, f"{term} needs more than one plain sentence"
    assert len(TERMS) == sum(len(group) for group in GROUPS.values()), "a term stands in two groups"


def test_other_words_lead_to_an_entry():
    assert {word for word, term in ALIASES.items() if term not in TERMS} == set()
    assert explain_term("Attention mask") == TERMS["tree attention mask"]
    assert explain_term("  BONUS   token ") == TERMS["bonus token"]
    assert explain_term("a word of nobody") == ""


def test_sentences_name_settings_as_the_forms_do():
    declared = known_settings()
    assert {name: declared[name].title for name in SETTING_TITLES} == SETTING_TITLES
    assert {name: kind.label for name, kind in VERIFIERS.items()} == VERIFIER_TITLES
    assert declared["history_statistic"].choices == STATISTIC_WORDS
    rules = [method.drafter.traced for method in METHODS.values() if method.drafter.traced is not None]
    named = {rule.depth_setting for rule in rules} | {rule.threshold_setting for rule in rules}
    named |= {rule.breadth_setting for rule in rules} | {rule.children_setting for rule in rules}
    named |= {rule.budget_setting for rule in rules}
    assert named and named - {""} <= set(SETTING_TITLES)
