"""The tokenizer of a pair: text to ids and back, token by token, never with a broken character."""

import codecs
import json
from collections.abc import Mapping, Sequence
from typing import Any

from transformers.convert_slow_tokenizer import bytes_to_unicode

from decoding.common.errors import PairError, PromptError, first_line, is_failure

SAMPLE = "One day, 2 foxes met."

# Tokens that end a turn in the chat templates in use; only those that the template names count.
END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|end_of_turn|>", "</s>")


def _show_bytes(error: UnicodeError) -> tuple[str, int]:
    """Decoding error handler: bytes that are not a whole character become `<0xE2>`, one by one."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(f"<0x{byte:02X}>" for byte in error.object[error.start : error.end]), error.end


codecs.register_error("draftscope_bytes", _show_bytes)


# The printable character of every byte in a byte-level BPE vocabulary, character to byte.
BYTE_ALPHABET = {char: byte for byte, char in bytes_to_unicode().items()}


class Vocabulary:
    """The tokenizer that a pair shares.

    Attributes:
        size: number of ids the target's logits have; ids past the tokenizer's are padding and read `<id>`.
        stop_ids: ids that end the text: of the tokenizer and the generation config, with chat also the template's.
    """

    def __init__(self, tokenizer: Any, size: int, stop_ids: Sequence[int] = (), chat: bool = False):
        self.tokenizer = tokenizer
        self.size = size
        self.chat = chat
        self._added = {int(i): str(token) for i, token in tokenizer.added_tokens_decoder.items()}
        self._kind = _kind(tokenizer)
        self._texts: dict[int, str] = {}
        if chat and not tokenizer.chat_template:
            raise PairError("The target's tokenizer has no chat template; turn chat off or choose an Instruct model.")
        self.stop_ids = frozenset(i for i in self._stops(stop_ids) if 0 <= i < size)

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text, with the start token that the tokenizer itself puts before a text, if any."""
        return self._encoded(text, add_special_tokens=True)

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a prompt, through the chat template where the pair was loaded with it."""
        return self.encode_chat(text) if self.chat else self.encode(text)

    def encode_chat(self, messages: str | Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation, or of one user message, up to where the assistant's answer begins."""
        if not self.tokenizer.chat_template:
            raise PairError("The target's tokenizer has no chat template; turn chat off or choose an Instruct model.")
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        try:
            text = self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template is a program of the model's makers
            raise PromptError(f"The model's chat template rejects these messages ({first_line(error)}).") from error
        return self._encoded(text, add_special_tokens=False)

    def check(self, name: str) -> None:
        """Refuse the tokenizer of model `name` if it cannot encode plain text or its chat template does not work."""
        try:
            tokens = self._ids(SAMPLE, add_special_tokens=True)
        except PromptError as error:
            why = first_line(error.__cause__ or error)
            raise PairError(f"The tokenizer of {name} cannot encode plain text ({why}); download it again.") from error
        if (largest := max(tokens, default=0)) >= self.size:
            raise PairError(
                f"The tokenizer of {name} gives token {largest:,} for plain text, and the model has {self.size:,}: "
                "they are from different models; download both again."
            )
        if not tokens:
            raise PairError(f"The tokenizer of {name} gives no tokens for plain text; download tokenizer.json again.")
        if not self.chat:
            return
        try:
            conversation = self.encode_chat(SAMPLE)
        except PromptError as error:
            why = first_line(error.__cause__ or error)
            raise PairError(f"The chat template of {name} cannot be used ({why}); turn chat off.") from error
        if not conversation:
            raise PairError(f"The chat template of {name} gives no text for a message; turn chat off.")

    def text(self, token_id: int) -> str:
        """Text of one token: special tokens by name, bytes that are not a whole character as `<0xE2>`."""
        if token_id not in self._texts:
            self._texts[token_id] = self._bytes(token_id).decode("utf-8", errors="draftscope_bytes")
        return self._texts[token_id]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of several tokens; characters split over tokens are whole again."""
        return b"".join(self._bytes(i) for i in token_ids).decode("utf-8", errors="draftscope_bytes")

    def _bytes(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id].encode()
        token = self.tokenizer.convert_ids_to_tokens(token_id) if 0 <= token_id < len(self.tokenizer) else None
        if token is None:
            return f"<{token_id}>".encode()
        if self._kind == "bytes" and all(char in BYTE_ALPHABET for char in token):
            return bytes(BYTE_ALPHABET[char] for char in token)
        if self._kind == "pieces":
            if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
                return bytes([int(token[3:5], 16)])
            return token.replace("▁", " ").encode()
        return self.tokenizer.decode([token_id]).encode()

    def _stops(self, given: Sequence[int]) -> set[int]:
        stops = set(given)
        if self.tokenizer.eos_token_id is not None:
            stops.add(self.tokenizer.eos_token_id)
        if self.chat:
            template = str(self.tokenizer.chat_template)
            by_name = {name: i for i, name in self._added.items()}
            stops |= {by_name[name] for name in END_OF_TURN if name in template and name in by_name}
        return stops

    def _ids(self, text: str, add_special_tokens: bool) -> list[int]:
        try:
            return list(self.tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"])
        except BaseException as error:  # the tokenizers library raises nothing more particular, and panics
            if not is_failure(error):
                raise
            raise PromptError(f"The tokenizer fails on this text ({first_line(error)}); change the text.") from error

    def _encoded(self, text: str, add_special_tokens: bool) -> list[int]:
        ids = self._ids(text, add_special_tokens)
        too_large = next((i for i in ids if i >= self.size), None)
        if too_large is not None:
            raise PromptError(
                f"The prompt contains {self.text(too_large)!r}, a token that the target has no logit for; leave it out."
            )
        return ids


def _kind(tokenizer: Any) -> str:
    """How tokens spell bytes: `bytes` (byte-level BPE), `pieces` (SentencePiece) or `other`."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or backend.decoder is None:
        return "other"
    decoder = json.dumps(json.loads(backend.decoder.__getstate__()), ensure_ascii=False)
    if "ByteLevel" in decoder:
        return "bytes"
    return "pieces" if "▁" in decoder or "ByteFallback" in decoder else "other"
