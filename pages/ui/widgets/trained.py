"""Settings that name a trained draft head or selector, or a kept matrix: those that fit the pair in memory.

A setting is shown only where there is something to choose.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import decoding
from decoding.common import matrix_store as matrices
from decoding.heads import store as heads
from decoding.models.presets import EMBEDDED
from decoding.selector import store as selectors
from pages.ui.common.models import manager

if TYPE_CHECKING:
    from decoding.common.matrix_store import MatrixCard
    from decoding.heads.store import HeadCard
    from decoding.methods.method import Method
    from decoding.selector.store import SelectorCard

DRAFT_HEAD, SELECTOR, MATRIX = "draft_head", "selector", "matrix"
TRAINED = (DRAFT_HEAD, SELECTOR, MATRIX)
HEAD_METHOD = "salf"
FEW_TOKENS = 1000  # the most frequent ones, which each head is offered over as well
NONE_WORDS = {DRAFT_HEAD: "The pair's draft model", SELECTOR: "None: K, L1 and L2 as set", MATRIX: "Empty at first"}
EMBEDDED_NAME = "Embedded pair"


def trained_choices(method: "Method") -> dict[str, dict[str, str]]:
    """The choices of each such setting of a method with their labels, `""` (none) first."""
    found: dict[str, dict[str, str]] = {}
    if method.drafter.uses_draft_model:
        cards = _fitting()[0]
        few = [replace(card, name=f"{card.name}@{FEW_TOKENS}", tokens=FEW_TOKENS) for card in cards
               if len(card.frequent) >= FEW_TOKENS]  # fmt: skip
        found[DRAFT_HEAD] = _words([(card.name, card.words) for card in [*cards, *few]])
    if SELECTOR in method.drafter.optional:
        fitting = [card for card in _fitting()[1] if card.verifier == method.verifier.name]
        found[SELECTOR] = _words([(card.name, card.words) for card in fitting])
    if MATRIX in method.drafter.optional:
        found[MATRIX] = {card.full_name: card.words for card in _fitting()[2]}
    return {setting: {"": NONE_WORDS[setting]} | names for setting, names in found.items() if names}


def presets() -> "dict[str, Method]":
    """The configurations of the papers, and SALF with each head that fits the pair in memory: `SALF + TALF head`."""
    from decoding.methods.methods import FORMER_PRESETS, PRESETS

    return {name: method for name, method in PRESETS.items() if name not in FORMER_PRESETS} | {
        f"{decoding.METHODS[HEAD_METHOD].label} + {head}": method for head, method in head_methods().items()
    }


def head_methods() -> "dict[str, Method]":
    """The method for draft heads, with each head that fits the pair in memory, by the label of the head."""
    named = _words([(card.name, card.label) for card in _fitting()[0]])
    return {words: decoding.METHODS[HEAD_METHOD].with_settings(draft_head=name) for name, words in named.items()}


def head_words(name: str) -> str:
    """Loss, pair and date of a head, and its figures, in one line."""
    card = next(card for card in _fitting()[0] if card.name == name)
    figures = ", ".join(f"{figure.replace('_', ' ')} {value:.4g}" for figure, value in card.figures.items())
    return f"{card.words}. {figures}".strip()


def _words(named: list[tuple[str, str]]) -> dict[str, str]:
    """Labels by name; equal labels get the name appended."""
    words = [word for _, word in named]
    return {name: word if words.count(word) == 1 else f"{word} ({name})" for name, word in named}


def _fitting() -> "tuple[list[HeadCard], list[SelectorCard], list[MatrixCard]]":
    """The heads, selectors and matrices that fit the pair in memory, or the pair that would be loaded."""
    identity, settings = manager().identity, manager().settings

    def fits(card: "HeadCard | SelectorCard | MatrixCard", kind: ModuleType) -> bool:
        if identity is not None:
            return kind.fits(card, identity)
        embedded = settings.target == EMBEDDED if kind is heads else settings.embedded
        return embedded and card.pair["name"] == EMBEDDED_NAME

    stored = zip(_stored(tuple(_stamps())), (heads, selectors, matrices), strict=True)
    return tuple([card for card in cards if fits(card, kind)] for cards, kind in stored)


@lru_cache(maxsize=2)
def _stored(_stamps: tuple) -> "tuple[list[HeadCard], list[SelectorCard], list[MatrixCard]]":
    """Every stored head, selector and matrix; read again when one of their files has changed."""
    return heads.all_heads(), selectors.all_selectors(), matrices.all_matrices()


def _stamps() -> Iterator[tuple[Path, int]]:
    for store, kind in ((heads, heads.HEADS), (selectors, selectors.SELECTORS), (matrices, matrices.MATRICES)):
        for _, folder in kind.stored(store.SHIPPED):
            for file in (folder / kind.card, folder / kind.weights):
                try:
                    yield file, file.stat().st_mtime_ns
                except FileNotFoundError:  # deleted meanwhile
                    continue
