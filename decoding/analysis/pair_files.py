"""What the files of a draft/target pair say about its acceptance: chat templates, tokenizers, sizes, stored weights.

Nothing is computed with the models here, and every model is one that lies on this machine: no request leaves it.
"""

import copy
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError
from transformers.models.auto.modeling_auto import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from decoding.common.errors import PairError, PromptError
from decoding.engines.base import FORWARD_ERRORS
from decoding.models.folder import CONFIG, SMALL_FILES, check_header, read_object
from decoding.models.loading import WeightsSource, find_model, load_tokenizer
from decoding.models.presets import EMBEDDED, PairSettings, gguf_file, model_folder
from decoding.models.vocabulary import Vocabulary

Verdict = Literal["fault", "sound", "not checked"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    verdict: Verdict
    evidence: str  # numbers measured here, fields of the files, or why the check could not be made
    mend: str = ""  # one sentence; empty where there is nothing to mend
    check: str = ""  # one of `doctor.CHECKS`, which the doctor fills in


def sound(evidence: str) -> Finding:
    """A check that found nothing wrong."""
    return Finding("sound", evidence)


def fault(evidence: str, mend: str) -> Finding:
    """A check that found something to mend."""
    return Finding("fault", evidence, mend)


def not_checked(why: str) -> Finding:
    """A check that could not be made."""
    return Finding("not checked", why)


# Ids: a draft proposes ids, so each one that means another text in the other model is a proposal that is never right.
MOST_OTHER_IDS = 0
LOADING_ERRORS = (*FORWARD_ERRORS, SafetensorError, OSError)
LAYER = re.compile(r"\.(\d+)\.")
SHOWN = 3  # examples in a sentence
# A conversation of every kind of turn that all templates take.
CONVERSATION = (
    {"role": "user", "content": "One day, 2 foxes met."},
    {"role": "assistant", "content": "What did they say?"},
    {"role": "user", "content": "Good morning."},
)
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


@dataclass(frozen=True, eq=False)
class ModelFiles:
    """What lies on this machine of one model."""

    role: str  # `target` or `draft`
    refusal: str = ""  # the sentence with which it cannot be opened, empty where it can
    source: WeightsSource | None = None
    tokenizer: Any = None
    # Settings of the language model; empty where they cannot be read
    config: Mapping[str, Any] = field(default_factory=dict)
    stored_bytes: Mapping[str, int] = field(default_factory=dict)  # bytes of the weights by dtype, as the files name it
    # missing, unexpected: tensors that the configuration asks for and the files lack, and the other way round; None
    # where they could not be matched
    missing: tuple[str, ...] | None = None
    unexpected: tuple[str, ...] | None = None

    def setting(self, names: Sequence[str]) -> int | None:
        """The first of some settings that is a number, None where there is none."""
        return next((self.config[name] for name in names if isinstance(self.config.get(name), int)), None)

    @property
    def known_ids(self) -> int:
        """One more than the largest id of the tokenizer."""
        return 1 + max(self.tokenizer.get_vocab().values(), default=-1)

    @property
    def vocab_size(self) -> int | None:
        """Ids that the model has logits for."""
        return self.setting(("vocab_size",))

    @property
    def positions(self) -> int | None:
        """Longest text that the model was trained on, in tokens, as far as its configuration says."""
        return self.setting(POSITIONS)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Stored tensors of layers beyond the last one that the configuration has."""
        layers = self.setting(LAYERS)
        return tuple(name for name in self.unexpected or () if layers is not None and layer_of(name) >= layers)


def local_name(name: str, role: str) -> str | None:
    """The same model by a name that is only looked for on this machine, None where it is not there."""
    if name == EMBEDDED or gguf_file(name) is not None:
        return name
    folder = model_folder(name, role)
    if folder is not None:
        return str(folder)
    is_path = name.startswith((".", "/", "~", "\\")) or name.count("/") > 1 or os.path.isfile(name)
    return name if is_path else None  # of a path the loader says what is wrong with it


def read_files(settings: PairSettings, role: str) -> ModelFiles:
    """Read everything but the weights of one model of a pair; what cannot be read is left out."""
    asked = getattr(settings, role)
    name = local_name(asked, role)
    if name is None:
        return ModelFiles(role, f"{asked} is not on this machine, and nothing is downloaded here; download it first.")
    gguf, folder = gguf_file(name), model_folder(name, role)
    source, refusal, config = None, "", {}
    stand_in = WeightsSource(name, str(folder), None, None, (), {"trust_remote_code": False, "local_files_only": True})
    try:
        source = find_model(name, role, settings.widen)
        config = source.config.get_text_config().to_dict()
    except PairError as error:
        refusal = str(error)
        config = _config_in(folder)
    tokenizer = None
    try:
        if source is not None or _small_files_open(folder):
            tokenizer = load_tokenizer(source or stand_in)
    except PairError as error:
        refusal = refusal or str(error)
    missing, unexpected = _unmatched(source)
    stored = _gguf_bytes(gguf) if gguf is not None and source is not None else _stored_bytes(folder)
    return ModelFiles(role, refusal, source, tokenizer, config, stored, missing, unexpected)


def _config_in(folder: Path | None) -> dict[str, Any]:
    try:
        config = read_object(folder / CONFIG, folder.name) if folder is not None else {}
    except PairError:
        return {}
    text = config.get("text_config")
    return {**config, **(text if isinstance(text, dict) else {})}


def _small_files_open(folder: Path | None) -> bool:
    """Whether what a tokenizer is read from are JSON files, and no pipes that would keep a reader waiting."""
    if folder is None:
        return False
    try:
        for name in SMALL_FILES:
            if os.path.lexists(folder / name):
                read_object(folder / name, folder.name)
    except PairError:
        return False
    return True


def _stored_bytes(folder: Path | None) -> Counter[str]:
    found: Counter[str] = Counter()
    files = [] if folder is None else sorted(folder.glob("model*.safetensors"))
    for file in files:
        try:
            header = check_header(file, file.parent.name)
        except PairError:
            return Counter()
        for entry in header.values():
            begin, end = entry["data_offsets"]
            found[entry["dtype"]] += end - begin
    return found


def _gguf_bytes(file: Path) -> Counter[str]:
    import gguf

    found: Counter[str] = Counter()
    for tensor in gguf.GGUFReader(file).tensors:
        found[tensor.tensor_type.name] += int(tensor.n_bytes)
    return found


def _unmatched(source: WeightsSource | None) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Names of missing and of unexpected tensors: the folder is loaded without memory for its weights."""
    if source is None or source.widen > 1 or "gguf_file" in source.options:
        return None, None
    transformers_logging.disable_progress_bar()
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # what it would warn of is what is returned
    model: Any = AutoModelForCausalLM
    try:
        _, report = model.from_pretrained(
            source.location,
            config=copy.deepcopy(source.config),
            device_map="meta",
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **source.options,
        )
    except LOADING_ERRORS:
        return None, None
    finally:
        transformers_logging.set_verbosity(before)
    return tuple(sorted(report["missing_keys"])), tuple(sorted(report["unexpected_keys"]))


def layer_of(name: str) -> int:
    """The number of the layer that a tensor belongs to, -1 for none."""
    found = LAYER.search(name)
    return int(found[1]) if found else -1


# ---- The checks that need only files.


def chat_template(target: ModelFiles, draft: ModelFiles, chat: bool) -> Finding:
    """Whether both have one chat template: it is the target's that formats the prompts of both."""
    if target.tokenizer is None or draft.tokenizer is None:
        return not_checked("a tokenizer cannot be read")
    how = "prompts go through the target's template" if chat else "prompts are given as plain text"
    templates = [files.tokenizer.chat_template for files in (target, draft)]
    if not any(templates):
        if chat:
            return fault("chat is on and neither model has a template",
                "Turn chat off, or choose models that were trained on conversations.",
            )  # fmt: skip
        return sound(f"neither model has one, and {how}")
    if not all(templates):
        lacking, other = ("draft", "target") if templates[0] else ("target", "draft")
        return fault(
            f"the {other} has a template and the {lacking} has none; {how}",
            f"Choose a {lacking} that was trained on conversations, or copy the {other}'s template into its folder if "
            "it was.",
        )
    if templates[0] == templates[1]:
        return sound(f"both have the same template; {how}")
    texts = [_conversation(files) for files in (target, draft)]
    if texts[0] is not None and texts[0] == texts[1]:
        return sound(f"the templates differ, and give the same text for a conversation; {how}")
    shown = " and ".join("an error" if text is None else repr(text[:60]) for text in texts)
    return fault(
        f"the templates give other texts for the same conversation, beginning with {shown}; {how}",
        "Use a draft that was trained with the target's template, or give both folders the one they were trained with.",
    )


def _conversation(files: ModelFiles) -> str | None:
    vocabulary = Vocabulary(files.tokenizer, files.known_ids, chat=True)
    try:
        return vocabulary.decode(vocabulary.encode_chat(CONVERSATION))
    except PromptError:
        return None


def tokenizers(target: ModelFiles, draft: ModelFiles, texts: Sequence[str]) -> Finding:
    """Whether the same text has the same ids, token by token and over whole prompts."""
    if target.tokenizer is None or draft.tokenizer is None:
        return not_checked("a tokenizer cannot be read")
    ours, theirs = target.tokenizer.get_vocab(), draft.tokenizer.get_vocab()
    moved = sorted((ours[token], theirs[token], token) for token in ours.keys() & theirs.keys())
    moved = [each for each in moved if each[0] != each[1]]
    alone = len(ours.keys() ^ theirs.keys())
    if len(moved) + alone > MOST_OTHER_IDS:
        examples = ", ".join(f"{token!r} is {a} in the target and {b} in the draft" for a, b, token in moved[:SHOWN])
        evidence = f"{len(moved):,} of {len(ours):,} tokens have another id and {alone:,} are in one tokenizer only"
        return fault(
            f"{evidence}{': ' * bool(examples)}{examples}",
            "Use a draft with the target's tokenizer, or train its embedding and output head anew on the target's ids.",
        )
    other = [text for text in texts if _ids(target, text) != _ids(draft, text)]
    if len(other) > MOST_OTHER_IDS:
        first, second = (_ids(files, other[0])[:4] for files in (target, draft))
        return fault(
            f"all {len(ours):,} tokens have the same ids, and {len(other)} of {len(texts)} prompts are cut into other "
            f"tokens: one begins with {first} in the target and {second} in the draft",
            "Give the draft's folder the target's tokenizer files if it was trained with them, or take another draft.",
        )
    return sound(f"all {len(ours):,} tokens have the same ids, and {len(texts)} prompts the same tokens")


def _ids(files: ModelFiles, text: str) -> list[int]:
    try:
        return Vocabulary(files.tokenizer, files.known_ids).encode(text)
    except PromptError:
        return []
