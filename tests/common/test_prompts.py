"""Prompts: the ones that come with the program, a folder of one's own, and what can be wrong with it."""

from collections import Counter
from pathlib import Path

import pytest

from decoding.common.errors import PromptError
from decoding.common.prompts import KINDS, MAX_FILE_BYTES, MAX_FILES, Prompt, calibration_prompts, load_prompts


def test_at_least_four_prompts_of_each_kind():
    counts = Counter(prompt.kind for prompt in load_prompts())
    assert set(counts) == set(KINDS)
    assert min(counts.values()) >= 4 and counts.total() >= 28


def test_sample_prompts_are_short_distinct_texts():
    prompts = load_prompts()
    assert len({prompt.text for prompt in prompts}) == len(prompts)
    for prompt in prompts:
        # What is to be edited, and the beginning of it edited, takes more words than a beginning alone.
        assert 20 <= len(prompt.text.split()) <= (120 if prompt.kind == "editing" else 80), prompt.name
        assert prompt.text == prompt.text.strip()
        assert "\r" not in prompt.text and "\t" not in prompt.text


def test_calibration_takes_the_prompts_that_comparisons_take_last():
    chosen, kinds = set(calibration_prompts()), {}
    for prompt in load_prompts():
        kinds.setdefault(prompt.kind, []).append(prompt in chosen)
    for own in kinds.values():
        assert own == sorted(own) and sum(own) == max(1, len(own) // 3)


def test_kinds_come_in_the_order_they_are_shown():
    kinds = [prompt.kind for prompt in load_prompts()]
    assert list(dict.fromkeys(kinds)) == list(KINDS)


def test_a_folder_of_ones_own(tmp_path: Path):
    root = tmp_path / "mine"
    (root / "poems" / "old").mkdir(parents=True)
    (root / ".hidden").mkdir()
    (root / "one.txt").write_text("\ufeffFirst line\n\n  second é \n", encoding="utf-8")
    (root / "poems" / "sea.txt").write_text("The sea", encoding="utf-8")
    (root / "poems" / "old" / "moon.txt").write_text("The moon", encoding="utf-8")
    (root / ".hidden" / "no.txt").write_text("no", encoding="utf-8")
    (root / "notes.md").write_text("no", encoding="utf-8")
    assert load_prompts(root) == (
        Prompt("mine", "one", "First line\n\n  second é"),
        Prompt("poems", "old/moon", "The moon"),
        Prompt("poems", "sea", "The sea"),
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"caf\xe9", "not UTF-8"),
        (b" \n", "is empty"),
        (b"a\0b", "is empty"),
        (b"x" * (MAX_FILE_BYTES + 1), "larger than 1 MiB"),
    ],
)
def test_a_file_that_is_no_prompt(content: bytes, says: str, tmp_path: Path):
    (tmp_path / "bad.txt").write_bytes(content)
    with pytest.raises(PromptError, match=f"bad.txt.*{says}.*: "):
        load_prompts(tmp_path)


def test_folders_without_prompts(tmp_path: Path):
    with pytest.raises(PromptError, match=r"has no .txt file: put"):
        load_prompts(tmp_path)
    with pytest.raises(PromptError, match=r"no folder .*: choose"):
        load_prompts(tmp_path / "nowhere")
    for number in range(MAX_FILES):
        (tmp_path / f"{number}.txt").write_text("a")
    assert len(load_prompts(tmp_path)) == MAX_FILES
    (tmp_path / "one too many.txt").touch()
    with pytest.raises(PromptError, match="at most 1000"):
        load_prompts(tmp_path)
