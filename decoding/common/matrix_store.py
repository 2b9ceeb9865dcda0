"""Adjacency matrices of token recycling that are kept: `matrix.json` and `matrix.safetensors`, below `RUN/matrix`.

One is made once, of one target, and never changed. A run records its name and digest, so that whoever goes on with the
run begins with the same content, or gets a sentence that it is gone.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from decoding.common.errors import require
from decoding.common.files import ROOT, training_home, write_whole
from decoding.common.trained_store import NAME, Kind, check_models, count_of, same_model, text_of

CANDIDATES = 8  # that a token keeps, as many as the published tree has children at a node
# By token: ids and probabilities of the target's likeliest next tokens, best first, at most `CANDIDATES`.
Matrix = Mapping[int, tuple[np.ndarray, np.ndarray]]

MATRICES = Kind(
    "matrix", "matrix", "matrix", "leave matrix empty", ending="safetensors", made="make", made_for="made with"
)
SHIPPED = ROOT / "decoding" / "matrices"  # none comes with the program
VERSION = 1
MOST_BYTES = 1 << 28  # more than a row for each of 2 million tokens takes
DIGITS = 12  # of a digest


@dataclass(frozen=True)
class MatrixCard:
    """What is known of a kept matrix before it is read.

    Attributes:
        name: value of the setting `matrix`, with or without `:` and the digest.
        created: date and time, ISO 8601.
        pair: `pair_identity` of the pair it was made with; only its target counts.
        digest: of the file of the matrix, the first `DIGITS` of SHA-256.
        begun: full name of the matrix that it goes on from; empty where it began with nothing.
        counts: of `prompts`, of `tokens` decoded and of `rows`.
    """

    name: str
    folder: Path
    created: str
    pair: Mapping[str, Any]
    digest: str
    begun: str
    counts: Mapping[str, int]
    shipped: bool = False

    @property
    def full_name(self) -> str:
        """Name and content: `stories:0123456789ab`."""
        return f"{self.name}:{self.digest}"

    @property
    def words(self) -> str:
        """Name, size, target and date: `stories, 1,024 tokens of Embedded target, 2026-11-22`."""
        tokens = f"{self.counts['tokens']:,} tokens"
        return f"{self.name}, {tokens} of {self.pair['target']['name']}, {self.created[:10]}"


def all_matrices() -> list[MatrixCard]:
    """Every kept matrix whose card can be read, the latest first."""
    return MATRICES.all(SHIPPED, read_card)


def find_matrix(name: str) -> MatrixCard:
    """The kept matrix of a name or a full name.

    Raises `SettingsError` where there is none, or the one of that name has another content; `PairError` where its card
    is damaged.
    """
    plain, _, digest = name.partition(":")
    card = MATRICES.find(plain, SHIPPED, read_card)
    require(
        digest in ("", card.digest),
        f"The matrix {plain} here is another one, with digest {card.digest} instead of {digest}: put that one back, "
        "or leave matrix empty.",
    )
    return card


def fits(card: MatrixCard, identity: Mapping[str, Any]) -> bool:
    """Whether a matrix was made with the target of this pair; any draft will do."""
    return same_model(card.pair["target"], identity["target"])


def require_fit(card: MatrixCard, identity: Mapping[str, Any]) -> None:
    """Raise `PairError` where a matrix was made with another target."""
    if not fits(card, identity):
        raise MATRICES.unfit(card.name, card.pair["target"]["name"], identity["target"]["name"])


def check_new(name: str) -> Path:
    """The folder for a new matrix; raises `SettingsError` where the name is none or is taken."""
    require(bool(NAME.fullmatch(name)), f"A matrix needs a name of letters, digits, '.', '_' and '-', not {name!r}.")
    place = training_home() / name
    require(not place.exists(), f"{place} is already there, and a matrix is never changed: choose another --name.")
    return place / MATRICES.folder


def save_matrix(
    folder: Path, matrix: Matrix, pair: Mapping[str, Any], created: str, begun: str, counts: Mapping[str, int]
) -> None:
    """Store a matrix of the target of a `pair_identity`; raises `DiskError` where the disk does not take it."""
    from safetensors.numpy import save

    tokens = np.array(sorted(matrix), dtype=np.int32)
    ids = np.full((len(tokens), CANDIDATES), -1, dtype=np.int32)
    probs = np.zeros((len(tokens), CANDIDATES), dtype=np.float32)
    for row, token in enumerate(tokens.tolist()):
        best, shares = matrix[token]
        ids[row, : len(best)], probs[row, : len(best)] = best, shares
    content = save({"tokens": tokens, "ids": ids, "probs": probs})
    card = {"version": VERSION, "created": created, "pair": dict(pair), "digest": _digest(content), "begun": begun,
            "counts": {**counts, "rows": len(tokens)}}  # fmt: skip
    write_whole(folder / MATRICES.weights, content)
    write_whole(folder / MATRICES.card, json.dumps(card, indent=1).encode())  # last: it is there once its card is


def read_card(folder: Path, name: str) -> MatrixCard:
    """What `matrix.json` in a folder says; `PairError` where it is damaged."""

    def card_of(content: Mapping[str, Any]) -> MatrixCard:
        check_models(content["pair"], ("target",))
        digest, counts = text_of(content["digest"]), content["counts"]
        if content["version"] != VERSION or len(digest) != DIGITS:
            raise ValueError
        return MatrixCard(
            name=name,
            folder=folder,
            created=text_of(content["created"]),
            pair=content["pair"],
            digest=digest,
            begun=text_of(content["begun"]),
            counts={name: count_of(counts[name]) for name in ("prompts", "tokens", "rows")},
        )

    return MATRICES.read(folder, card_of)


def load_matrix(name: str) -> Matrix:
    """The kept matrix of a name or a full name, which nobody may change.

    Raises what `find_matrix` does, and `PairError` where the matrix is damaged.
    """
    card = find_matrix(name)
    return _read(card.folder, card.digest, card.pair["target"]["vocab_size"], MATRICES.stamp(card.folder))


@lru_cache(maxsize=4)
def _read(folder: Path, digest: str, vocab_size: int, _stamp: int) -> Matrix:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        with (folder / MATRICES.weights).open("rb") as file:
            content = file.read(MOST_BYTES)
        if _digest(content) != digest:
            raise MATRICES.damaged(folder, f"{MATRICES.weights} is not the one that {MATRICES.card} describes")
        held = load(content)
        tokens, ids, probs = held["tokens"], held["ids"], held["probs"]
    except OSError as error:
        raise MATRICES.damaged(folder, f"{MATRICES.weights}: {error.strerror}") from None
    except (SafetensorError, KeyError):
        raise MATRICES.damaged(folder, f"{MATRICES.weights} holds no matrix") from None
    there, shape = ids >= 0, (*tokens.shape, CANDIDATES)
    sound = (tokens.dtype, ids.dtype, probs.dtype) == (np.int32, np.int32, np.float32) and tokens.ndim == 1
    sound = sound and ids.shape == probs.shape == shape and bool(((probs >= 0) & (probs <= 1)).all())
    if not sound or (tokens < 0).any() or max(tokens.max(initial=-1), ids.max(initial=-1)) >= vocab_size:
        raise MATRICES.damaged(folder, f"{MATRICES.weights} holds what is no id or no probability")
    return {token: (ids[row][there[row]], probs[row][there[row]]) for row, token in enumerate(tokens.tolist())}


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()[:DIGITS]
