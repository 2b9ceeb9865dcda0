"""What is read of a folder of text, what is held out of training, and what is refused."""

import gzip

import pytest

from decoding.common.errors import TrainingError
from decoding.training.text import END_OF_TEXT, documents, python_documents, read_corpus
from tests.helpers.small_pair import write_corpus

LONG = "All work and no play makes a dull text.\n\n" * 2000


def test_the_last_two_percent_of_every_file_are_held_out_at_a_boundary(tmp_path):
    corpus = read_corpus(write_corpus(tmp_path))
    assert list(corpus.trained) == ["stories", "sums"]
    for kind in corpus.trained:
        trained, held_out = ("\n".join(texts) for texts in (corpus.trained[kind], corpus.held_out[kind]))
        assert 0.018 < len(held_out) / (len(held_out) + len(trained)) < 0.033, kind
        text = (tmp_path / f"{kind}.txt").read_text()
        assert text.endswith(corpus.held_out[kind][-1].rstrip("\n")), "it is the last part"
        assert not set(corpus.trained[kind]) & set(corpus.held_out[kind])
    assert len(corpus.held_out["stories"]) >= 3 and corpus.held_out["stories"][0][0].isupper()
    assert corpus.held_out["sums"][0].startswith("Question"), "one document is parted between paragraphs"


def test_a_document_that_begins_within_the_slack_is_held_out_whole(tmp_path):
    first, last = ("word " * (length // 5 - 1) + "words" for length in (97_000, 3_000))
    (tmp_path / "tales.txt").write_text(f"{first}\n{END_OF_TEXT}\n{last}", encoding="utf-8")
    corpus = read_corpus(tmp_path)
    assert (corpus.trained["tales"], corpus.held_out["tales"]) == ((first,), (last,))


def test_a_valid_file_is_held_out_whole_and_gzip_is_read(tmp_path):
    write_corpus(tmp_path)
    (tmp_path / "tales.part.txt.gz").write_bytes(gzip.compress(LONG.encode()))
    (tmp_path / "tales.valid.txt").write_text(LONG.replace("dull", "long"), encoding="utf-8")
    corpus = read_corpus(tmp_path)
    assert "long text" not in "".join(corpus.trained["tales"])
    assert "".join(corpus.held_out["tales"]).count("long text") == 2000
    assert corpus.identity == read_corpus(tmp_path).identity
    (tmp_path / "tales.valid.txt").write_text(LONG, encoding="utf-8")
    assert corpus.identity != read_corpus(tmp_path).identity


def test_documents_are_parted_by_their_own_line():
    text = f"one\n{END_OF_TEXT}\n\ntwo {END_OF_TEXT} still two\n{END_OF_TEXT}\n{END_OF_TEXT}\n"
    assert documents(text) == ["one", f"two {END_OF_TEXT} still two"]


@pytest.mark.slow
def test_the_standard_library_is_a_kind_without_its_tests(tmp_path):
    corpus = read_corpus(write_corpus(tmp_path), python_source=True)
    assert list(corpus.trained) == ["python", "stories", "sums"]
    assert len(corpus.trained["python"]) > 100 and corpus.held_out["python"]
    assert not any("unittest.main()" in text and "class TestCase" not in text for text in python_documents()[:50])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", b"", "a.txt is empty"),
        ("a.txt", b" \n\n", "a.txt is empty"),
        ("a.txt", b"short", "a.txt has 5 characters"),
        ("a.txt", b"\x00\x01" * 4000, "a.txt is binary"),
        ("a.txt", b"\xff\xfe\xfa" * 4000, "not UTF-8"),
        ("a.txt.gz", b"no gzip" * 900, "damaged gzip file"),
        ("a.txt.gz", gzip.compress(LONG.encode())[:-20], "damaged gzip file"),
        ("a.valid.txt", LONG.encode(), "characters to train on"),
        ("a.txt", LONG[:9000].encode(), "characters to train on"),
    ],
)
def test_bad_text_is_refused_in_one_sentence(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TrainingError, match=words) as refused:
        read_corpus(tmp_path)
    assert str(refused.value).endswith(".") and "\n" not in str(refused.value)


def test_a_kind_that_is_only_held_out_is_refused(tmp_path):
    write_corpus(tmp_path)
    (tmp_path / "poems.valid.txt").write_text(LONG, encoding="utf-8")
    with pytest.raises(TrainingError, match="All text of kind poems is held out"):
        read_corpus(tmp_path)


def test_no_folder_and_no_text_in_it(tmp_path):
    with pytest.raises(TrainingError, match="There is no folder"):
        read_corpus(tmp_path / "nowhere")
    (tmp_path / "a.pdf").write_text("x")
    with pytest.raises(TrainingError, match=r"has no \.txt"):
        read_corpus(tmp_path)
