"""Plays a random case: decodes it, forks and rewinds it on the way, and compares every text with what it must be."""

import io
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch
from transformers import GenerationConfig

from benchmarks.random_cases import Case, draw_method
from benchmarks.tiny_models import END, WORDS
from decoding.compare.identity import MarginJudge, explain_difference
from decoding.models.pair import Pair
from decoding.session.session import DecodeSession
from decoding.trace.archive import load_run, save_run
from decoding.trace.edits import Edits, Path

MOST_SESSIONS = 5
LONGER = 8  # tokens that a fork may go on past the limit, where the context has room
# What is done with a session on the way. Forks with other trees draw other numbers: sampled texts have none.
ACTIONS = ("fork", "rewind", "release", "peek", "save")
GREEDY_ACTIONS = (*ACTIONS, "switch", "longer", "edit", "edit")


@dataclass(frozen=True)
class Found:
    """A text that is not what it must be; `words` say which and where."""

    near_tie: bool
    words: str


@dataclass
class Played:
    """What came of a case; tokens, iterations and accepted tokens are those of its first session."""

    outputs: int = 0
    tokens: int = 0
    iterations: int = 0
    accepted: int = 0
    found: tuple[Found, ...] = ()


class Player:
    """Plays cases on one pair.

    Args:
        reference: the target as transformers loads it, which `generate` is called on.
    """

    def __init__(self, pair: Pair, reference: Any):
        self.pair, self._reference = pair, reference
        self._judge: MarginJudge | None = None

    def play(self, case: Case) -> Played:
        """Decode a case; hold its texts against greedy decoding, those of sampled cases against one left alone."""
        vocabulary, own, greedy = self.pair.vocabulary, self.pair.vocabulary.stop_ids, None
        longest = min(case.limits.max_new_tokens + LONGER, self.pair.context - len(case.prompt_ids))
        if case.kind != "sampled" or case.stop_place is not None:
            greedy = self._generate(case.prompt_ids, longest)
        if case.stop_place is not None:
            vocabulary.stop_ids = own | {greedy[case.stop_place]}
        try:
            return self._compare(case, longest, self._undisturbed(case) if case.kind == "sampled" else greedy)
        finally:
            vocabulary.stop_ids = own

    @torch.inference_mode()
    def _generate(self, prompt_ids: tuple[int, ...], count: int) -> tuple[int, ...]:
        """Greedy text of transformers, with no stop tokens."""
        ids = torch.tensor([prompt_ids])
        settings = GenerationConfig(do_sample=False, max_new_tokens=count, eos_token_id=None, pad_token_id=END)
        text = self._reference.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
        return tuple(text[0, len(prompt_ids) :].tolist())

    def _undisturbed(self, case: Case) -> tuple[int, ...]:
        """The text of a sampled case with whose session nothing is done on the way."""
        session = DecodeSession(self.pair, case.method, list(case.prompt_ids), case.sampling, case.limits)
        for _ in session:
            pass
        return tuple(session.tokens[len(case.prompt_ids) :])

    def _compare(self, case: Case, longest: int, expected: tuple[int, ...]) -> Played:
        played, found = Played(), []
        for label, session in self._sessions(case, longest, played):
            output = tuple(session.tokens[len(case.prompt_ids) :])
            stops = () if session.limits.ignore_end_of_text else self.pair.vocabulary.stop_ids
            wanted, stopped = _cut(expected, session.limits.max_new_tokens, stops)
            played.outputs += 1
            if output != wanted:
                found.append(self._difference(label, case, output, wanted))
            elif session.stopped != stopped:
                found.append(Found(False, f"{label}: the text ended as {session.stopped} instead of {stopped}."))
        played.found = tuple(found)
        return played

    def _difference(self, label: str, case: Case, output: tuple[int, ...], wanted: tuple[int, ...]) -> Found:
        if case.kind == "sampled":
            return Found(False, f"{label}: the sampled text is not that of a session left alone.")
        if self._judge is None:
            self._judge = MarginJudge(self.pair.target.with_engine("library"))
        difference = explain_difference(self.pair, list(case.prompt_ids), output, wanted, self._judge)
        return Found(difference.near_tie, f"{label}: {difference.explanation}")

    def _sessions(self, case: Case, longest: int, played: Played) -> Iterator[tuple[str, DecodeSession]]:
        """Every session of a case when it has ended: the first one, and those that were made of others on the way."""
        random = Random(f"on the way {case.number}")
        first = DecodeSession(self.pair, case.method, list(case.prompt_ids), case.sampling, case.limits)
        waiting, made = [("the text", first)], 1
        while waiting:
            label, session = waiting.pop(0)
            while True:
                if made < MOST_SESSIONS and random.random() < case.restless:
                    action = random.choice(ACTIONS if case.kind == "sampled" else GREEDY_ACTIONS)
                    other = self._act(action, session, random, longest)
                    if other is not None:
                        waiting.append((f"{label}, {action} at {len(session.tokens) - len(case.prompt_ids)}", other))
                        made += 1
                if session.finished:
                    break
                step = session.step()
                if session is first:
                    played.iterations += 1
                    played.accepted += len(step.accepted)
            played.tokens = played.tokens or session.new_tokens
            yield label, session

    def _act(self, action: str, session: DecodeSession, random: Random, longest: int) -> DecodeSession | None:
        """Do something with a session; another session that came of it, None if none did."""
        recorded = session.limits.record != "none"
        if action == "fork":
            return session.fork()
        if action == "switch":
            return session.fork(draw_method(random, session.sampling), edits=Edits())  # they were of another tree
        if action == "longer":
            return session.fork(limits=replace(session.limits, max_new_tokens=longest), edits=Edits())
        if action == "rewind" and recorded:
            return session.rewind(random.randint(0, len(session.iterations)))
        if action == "release":
            session.release()
        elif action == "peek" and not session.finished:
            session.peek()
        elif action == "edit" and not session.finished:
            edits = self._edits(session, random)
            return session.fork(edits=edits) if edits else None
        elif action == "save" and recorded:
            file = io.BytesIO()
            save_run(session.trace(), file)
            load_run(file)
        return None

    def _edits(self, session: DecodeSession, random: Random) -> Edits | None:
        """Nodes put into the next tree and taken out of it, which never change a greedy text."""
        if not session.method.drafter.uses_draft_model:
            return None
        draft, _ = session.fork(edits=Edits()).peek()
        paths: dict[int, Path] = {0: ()}
        for node in range(1, draft.tree.size):
            paths[node] = (*paths[int(draft.tree.parents[node])], int(draft.tree.tokens[node]))
        verified = [paths[int(node)] for node in draft.order]
        if len(verified) > 1 and random.random() < 0.5:
            return Edits(force_out=(random.choice(verified[1:]),))
        room = session.limits.max_new_tokens - session.new_tokens - 1
        path = (*random.choice(verified), random.randrange(WORDS))
        return Edits(force_in=(path,)) if len(path) <= room and path not in verified else None


def _cut(text: tuple[int, ...], count: int, stops: Container[int]) -> tuple[tuple[int, ...], str]:
    """So many tokens of a text at most, up to its first stop token, and why it ends there."""
    ends = next((place + 1 for place, token in enumerate(text[:count]) if token in stops), None)
    return (text[:count], "length") if ends is None else (text[:ends], "end_of_text")
