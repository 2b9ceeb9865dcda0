"""Tokenizer and arrays of tokens: round trips, preparing again, and batches that depend on seed and step alone."""

import numpy as np
import pytest

from decoding.common.errors import TrainingError
from decoding.models.loading import find_model, load_tokenizer
from decoding.training.pair_tokens import END_ID, prepare
from decoding.training.text import read_corpus
from tests.helpers.small_pair import arrays_in, write_corpus

STRANGE = "Tom saw 12 + 34 = 46.\n\n\tdef f(x):\n        return 'naïve — Ω'\n"


def quietly(words: str) -> None:
    """No progress."""


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    return arrays_in(tmp_path_factory.mktemp("arrays"))


def test_text_comes_back_from_its_tokens(arrays):
    ids = arrays.tokenizer(STRANGE)["input_ids"]
    assert arrays.tokenizer.decode(ids) == STRANGE
    assert len(arrays.tokenizer) == 320 and arrays.tokenizer.convert_tokens_to_ids("<|endoftext|>") == END_ID
    assert END_ID not in ids, "the tokenizer itself puts nothing before a text"


def test_documents_lie_between_ends_of_text(arrays):
    for kind in arrays.kinds:
        for tokens in (arrays.trained[kind], arrays.held_out[kind]):
            assert tokens.dtype == np.uint16 and tokens[0] == tokens[-1] == END_ID
    assert (arrays.trained["stories"] == END_ID).sum() > 150
    assert arrays.tokenizer.decode(arrays.held_out["sums"][1:20].tolist()).startswith("Question: ")


def test_a_batch_is_a_function_of_seed_and_step(arrays):
    first = arrays.batch(3, 7, 16, 24)
    assert first.shape == (16, 24) and first.dtype == np.int64
    assert (first == arrays.batch(3, 7, 16, 24)).all()
    assert (first != arrays.batch(3, 8, 16, 24)).any() and (first != arrays.batch(4, 7, 16, 24)).any()
    text = arrays.trained["stories"].tobytes() + b"|" + arrays.trained["sums"].tobytes()
    assert all(row.astype(np.uint16).tobytes() in text for row in first)


def test_kinds_are_mixed_by_the_root_of_their_size(arrays):
    sizes = {kind: len(tokens) for kind, tokens in arrays.trained.items()}
    shares = arrays.shares()
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["stories"] / shares["sums"] == pytest.approx((sizes["stories"] / sizes["sums"]) ** 0.5)


def test_held_out_windows_are_of_the_held_out_part(arrays):
    rows = arrays.held_out_rows("stories", 4, 16)
    text = arrays.held_out["stories"].tobytes()
    assert len(rows) == 4 and all(row.astype(np.uint16).tobytes() in text for row in rows)
    long = arrays.held_out_rows("sums", 4, 5000)
    assert long.shape == (1, 5000), "a text that is too short for a window is repeated"


def test_preparing_goes_on_and_does_not_mix_texts(tmp_path):
    first = arrays_in(tmp_path)
    (tmp_path / "data" / "tokens.json").unlink()
    (tmp_path / "data" / "sums.held_out.npy").unlink()
    assert arrays_in(tmp_path).identity == first.identity, "what was missing is made again"

    def must_not(*_):
        raise AssertionError("all is prepared: the corpus need not be read")

    assert prepare(tmp_path / "data", must_not, report=quietly).identity == first.identity
    (tmp_path / "data" / "tokens.json").unlink()
    (tmp_path / "texts" / "stories.txt").write_text("Another text.\n\n" * 5000)
    with pytest.raises(TrainingError, match="started with a different text"):
        prepare(tmp_path / "data", lambda: read_corpus(tmp_path / "texts"), report=quietly)


def test_damaged_arrays_are_reported(tmp_path):
    arrays_in(tmp_path)
    (tmp_path / "data" / "sums.trained.npy").write_bytes(b"no array")
    with pytest.raises(TrainingError, match="are damaged"):
        prepare(tmp_path / "data", lambda: read_corpus(write_corpus(tmp_path / "texts")), report=quietly)


def test_transformers_loads_it_like_that_of_the_embedded_pair(arrays, tmp_path):
    shipped = load_tokenizer(find_model("embedded", "target"))
    mine = arrays.tokenizer
    assert type(mine) is type(shipped)
    for name in ("bos_token", "eos_token", "pad_token", "clean_up_tokenization_spaces"):
        assert getattr(mine, name) == getattr(shipped, name), name
    assert mine.backend_tokenizer.pre_tokenizer.__getstate__() == shipped.backend_tokenizer.pre_tokenizer.__getstate__()
