"""Real pretrained models that lie on this machine: they load as folders and as a GGUF file, and every method writes
what `generate` writes. `DRAFTSCOPE_REAL_WEIGHTS` names a folder with SmolLM2-135M-Instruct and with the pair
TinyLlama-1.1B-Chat and stories15M, any of them; GGUF files may lie there, too."""

import os
from pathlib import Path

import pytest

from decoding.compare.hf_generate import run_baseline
from decoding.methods.methods import METHODS
from decoding.models.pair import PairSettings, load_pair, release
from decoding.session.session import DecodeSession, Limits

WHERE = Path(os.environ.get("DRAFTSCOPE_REAL_WEIGHTS", "/nowhere"))
PAIRS = (("TinyLlama-1.1B-Chat", "stories15M"), ("SmolLM2-135M-Instruct", "SmolLM2-135M-Instruct"))
PROMPT = "Once upon a time there was a little girl who had a red ball."

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not WHERE.is_dir(), reason="DRAFTSCOPE_REAL_WEIGHTS names no folder"),
]


def greedy(pair, method, ids, length=24):
    session = DecodeSession(pair, method, ids, limits=Limits(length))
    list(session)
    return session.tokens[len(ids) :]


@pytest.mark.parametrize("names", PAIRS, ids=" + ".join)
def test_every_greedy_method_writes_the_text_of_generate(names):
    folders = [WHERE / name for name in names]
    if not all(folder.is_dir() for folder in folders):
        pytest.skip(f"{WHERE} holds no {' and '.join(names)}")
    target, draft = map(str, folders)
    pair = load_pair(PairSettings(target, draft, device="cpu", dtype="float32", context_length=256))
    try:
        ids = pair.vocabulary.encode(PROMPT)
        expected = list(run_baseline(pair, "hf_generate", ids, 24).output_ids)
        for name in ("autoregressive", "linear", "fixed_tree", "dynatree", "salf", "hardware_aware"):
            assert greedy(pair, METHODS[name], ids) == expected, name
    finally:
        release(pair)


def test_a_gguf_file_is_the_model_of_its_folder():
    pytest.importorskip("gguf")
    folder, files = WHERE / "SmolLM2-135M-Instruct", sorted(WHERE.rglob("SmolLM2-135M-Instruct*.gguf"))
    if not files or not folder.is_dir():
        pytest.skip(f"{WHERE} holds no SmolLM2-135M-Instruct as a folder and as a GGUF file")
    texts = []
    for place in (str(files[0]), str(folder)):
        pair = load_pair(PairSettings(place, place, device="cpu", dtype="float32", context_length=256))
        texts.append(greedy(pair, METHODS["linear"], pair.vocabulary.encode(PROMPT)))
        release(pair)
    assert texts[0] == texts[1]
