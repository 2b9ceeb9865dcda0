"""What a command says of its options, a page says of its own controls."""

import ast

import pytest

from decoding.common.errors import TrainingError
from pages.ui.common.errors import on_page, sentence
from tests.helpers.process import ROOT

# Folders whose errors reach a page: a process that a page started says them, or the page itself does.
HEARD = ("jobs", "training", "experiments", "papers")
HEARD_FILES = ("common/files.py", "common/trained_store.py", "costs/measuring.py")
# Of what is typed wrongly behind a command; a page never types so.
TYPED = ("Name the training run to resume", "Name a grid, or with --resume",
         "--again redoes a phase", "has not reached --again", "--samplings",
         "--count", "give --prompts")  # fmt: skip


def said_with_options():
    """Texts of errors raised in what pages hear that hold an option, formatted parts as `X`."""
    files = [file for folder in HEARD for file in sorted((ROOT / "decoding" / folder).rglob("*.py"))]
    files += [ROOT / "decoding" / name for name in HEARD_FILES]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and "Error" in ast.unparse(node.func):
                parts = [p.value if isinstance(p, ast.Constant) else "X" for a in node.args for p in _parts(a)]
                text = "".join(str(part) for part in parts)
                if "--" in text and not any(typed in text for typed in TYPED):
                    yield f"{file.name}: {text}"


def _parts(node):
    return node.values if isinstance(node, ast.JoinedStr) else [node]


def test_no_sentence_that_a_page_hears_names_an_option_there():
    said = list(said_with_options())
    assert len(said) >= 15, "the sentences were not found"
    assert [text for text in said if "--" in on_page(text)] == []


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "runs/one cannot be written (Permission denied): choose another --out.",
            "runs/one cannot be written (Permission denied): make it writable, or name another folder in "
            "DRAFTSCOPE_TRAINING or DRAFTSCOPE_EXPERIMENTS.",
        ),
        ("Stopped after 3 steps; continue with --resume.", "Stopped after 3 steps; resume it to continue."),
        ("runs/one has no training: start one with --out runs/one.", "runs/one has no training: start a new one."),
        ("my run has no training: start one with --out my run.", "my run has no training: start a new one."),
        ("Resume with a lower --learning-rate.", "Resume with a lower “Learning rate”."),
        ("Run `hf download x --local-dir FOLDER`.", "Run `hf download x --local-dir FOLDER`."),
    ],
)
def test_words_of_a_command_become_those_of_the_page(said, shown):
    assert on_page(said) == shown
    assert sentence(TrainingError(said)).replace("\\", "") == shown
