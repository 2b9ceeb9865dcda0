"""Characters that a tokenizer splits into bytes: whole where a path has all of their tokens, bytes where it has not."""

from dataclasses import replace

import pytest

from tests.helpers import traces
from viz.explain.iteration import iteration_summary
from viz.scope.cards import cards
from viz.scope.data import run_text
from viz.scope.outline import tree_outline
from viz.scope.scene import build_scene
from viz.tokens import PIECE, read_along, readable, visible, whole


def tokens_of(text: str) -> list[str]:
    """A token per byte of what is not ASCII, as the embedded pair's tokenizer has them."""
    return [
        piece
        for character in text
        for piece in ([character] if character < "\x80" else [f"<0x{byte:02X}>" for byte in character.encode()])
    ]


@pytest.mark.parametrize("text", ["سلام", "日本", "a привет 🦊!", "plain"])
def test_pieces_of_a_character_are_joined(text):
    pieces = tokens_of(text)
    shown = read_along(pieces)
    assert len(shown) == len(pieces)
    assert "".join(shown).replace(PIECE, "") == text == whole("".join(pieces))
    assert visible("".join(pieces)) == visible(text)


def test_what_is_not_whole_stays_bytes():
    assert read_along(["<0xD9>"]) == ["<0xD9>"], "the next token is not there yet"
    assert read_along(["<0xD9>", "a", "<0x84>"]) == ["<0xD9>", "a", "<0x84>"]
    assert read_along(["<0x84>", "<0xD9>", "<0x84>"]) == ["<0x84>", PIECE, "ل"]
    assert whole("<0x41><0x42>") == "<0x41><0x42>", "ASCII that a model wrote letter by letter is no byte"
    assert read_along(["a<0xD9>", "<0x84>b<0xD9>", "<0x84>"]) == [f"a{PIECE}", f"لb{PIECE}", "ل"]


def script() -> tuple:
    """A path of two bytes that is accepted, and a sibling that makes another character of the first."""
    specs = (
        traces.Spec(0, "<0xD9>", 0.9, 0.9, "accepted"),
        traces.Spec(1, "<0x84>", 0.6, 0.8, "accepted"),
        traces.Spec(1, "<0x85>", 0.3, 0.1, "rejected"),
    )
    return traces.iteration_of(specs, final=(2, "<0xD8>", 0.5), final_kind="bonus", index=0, steps=())


def test_a_tree_names_the_characters_of_its_paths():
    iteration = script()
    assert [node.text for node in readable(iteration).nodes][1:] == ["<0xD9>", "ل", "م"]
    assert readable(iteration).final_text == "<0xD8>"
    words = {line.node_id: line.words for line in tree_outline(iteration)}
    assert "‘ل’" in words[2] and "‘م’" in words[3]
    assert "ل<0xD8>" in iteration_summary(iteration)
    shown = readable(iteration)
    reported = cards(shown, build_scene(shown, scene_id="s"))
    assert "byte" in dict(reported["1"]["facts"]) and "byte" not in dict(reported["2"]["facts"])


def test_the_text_joins_a_character_over_two_iterations():
    first = script()
    specs = (traces.Spec(0, "<0xA7>", 0.9, 0.9, "accepted"),)
    second = traces.iteration_of(specs, final=(1, "!", 0.5), final_kind="bonus", root_text="<0xD8>", index=1, steps=())
    run = replace(traces.run_of([first, second]), prompt_texts=("a",))
    assert [span[0] for span in run_text(run, 0, 1)["spans"]] == ["a", PIECE, "ل", PIECE, "ا", "!"]
    assert [span[0] for span in run_text(run, 0, 0)["spans"]] == ["a", PIECE, "ل", "<0xD8>"]
    assert readable(second).nodes[1].text == "ا"
