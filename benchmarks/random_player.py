"""Random calls of decoding, each drawn from its number alone, and played.

Pair, method, settings, verifier, prompt and so on are drawn. A case is decoded, forked and rewound on the way, and
every text is compared with what it must be.
"""

import io
import math
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch
from transformers import GenerationConfig

from benchmarks.tiny_models import END, WORDS, PairPlan
from decoding.common.settings import SettingInfo, settings_of
from decoding.compare.identity import MarginJudge, explain_difference
from decoding.drafters import Drafter
from decoding.methods.method import CACHE_POLICIES, Method, fitting
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.interventions import Interventions, Path
from decoding.trace.records import Setting
from decoding.trace.run_file import load_run, save_run
from decoding.trace.tree_mask import NODE_ORDERS

PAIRS = 200  # numbers that are alike modulo this share a pair
MOST_NEW_TOKENS = 40
# Nodes over all iterations of a run: large trees decode few tokens, so that they cost no more than the others.
MOST_NODES = 4000
# A nucleus as small as this holds the likeliest token alone: sampling must then give the greedy text.
NARROW = 0.5 / 192
KEPT_AS_IT_IS = 0.4  # share of settings that keep their default
Kind = str  # `greedy`, `narrow` (sampled, from a nucleus of one token) or `sampled`
OPEN_END = 1e-6  # how far from an end that is not accepted itself numbers are drawn
# Settings of one drafter, each of which must not be above, or must be below, the next.
RISING = (
    ("base_depth", "max_depth"),
    ("branch_min", "branch_mid", "branch_max"),
    ("confidence_low", "confidence_high"),
    ("stop_probability", "deep_probability"),
    ("history_minimum", "history_window"),
)


@dataclass(frozen=True)
class PlayerCase:
    """One call of decoding and what is done with its session on the way.

    Attributes:
        plan: of the pair.
        kind: `greedy` or `narrow`, whose text is that of greedy decoding, or `sampled`.
        stop_place: the token at this place of the greedy text ends texts; None: none but the tokenizer's does.
        restless: chance of a fork, a rewind, an edit and the like before each iteration.
    """

    number: int
    plan: PairPlan
    kind: Kind
    method: Method
    sampling: Sampling
    prompt_ids: tuple[int, ...]
    limits: Limits
    stop_place: int | None
    restless: float

    def __str__(self) -> str:
        settings = " ".join(f"{name}={value}" for name, value in self.method.settings().items())
        return (
            f"{self.plan}; {self.method.name} {settings}; {self.kind}, {self.sampling}; {len(self.prompt_ids)} prompt "
            f"tokens, {self.limits}; stop at {self.stop_place}; restless {self.restless}"
        )


def draw_case(number: int) -> PlayerCase:
    """The call of a number.

    Raises:
        SettingsError: settings that do not go together were drawn, which is a mistake here.
    """
    random, plan = Random(f"run {number}"), PairPlan.numbered(number % PAIRS)
    kind = random.choices(("greedy", "narrow", "sampled"), (8, 1, 1))[0]
    draft = 1.0  # extremes are drawn too, but seldom: trees of which nothing is accepted try little
    if (place := random.random()) > 0.5:
        draft = math.exp(random.uniform(*map(math.log, (0.05, 20) if place > 0.9 else (0.3, 3))))
    temperature = 0.0 if kind == "greedy" else math.exp(random.uniform(math.log(0.2), math.log(3)))
    top_p = NARROW if kind == "narrow" else random.choice((1.0, 1.0, random.uniform(0.05, 1.0)))
    sampling = Sampling(temperature, top_p, draft, random.randrange(2**31))
    method = draw_method(random, sampling)
    # Tokens of the prompt and new ones, from 1 to what fills the context to its last place.
    if random.random() < 0.02:
        prompt, new = plan.context - 1, 1
    else:
        new = min(random.randint(1, MOST_NEW_TOKENS), max(2, MOST_NODES // min(_nodes(method), 4096)))
        most = plan.context - new
        some = (1, random.randint(1, 8), random.randint(1, most), random.randint(1, most), most, most - 1)
        prompt = max(1, random.choice(some))
    record = random.choices(("full", "summary", "none"), (3, 3, 1))[0]
    return PlayerCase(
        number=number,
        plan=plan,
        kind=kind,
        method=method,
        sampling=sampling,
        prompt_ids=tuple(random.randrange(WORDS) for _ in range(prompt)),
        limits=Limits(
            new, random.random() < 0.3, record, random.choice(("top", "open", "full")), random.choice((None, 100_000))
        ),
        stop_place=random.randrange(new) if random.random() < 0.4 else None,
        restless=random.choice((0.0, 0.0, 0.15, 0.4)),
    )


def draw_method(random: Random, sampling: Sampling) -> Method:
    """A method with random settings, and one of the verifiers that keep the target's distribution on its trees."""
    name = random.choice(list(METHODS))
    method = METHODS[name].with_settings(**draw_settings(random, METHODS[name].drafter))
    verifiers = fitting(method.drafter.draft_sampling, sampling)
    # Half of the greedy runs take the greedy verifier, the others any that fits.
    verifier = "greedy" if sampling.greedy and random.random() < 0.5 else random.choice(verifiers)
    method = method.with_settings(
        verifier=verifier, cache_policy=random.choice(CACHE_POLICIES), node_order=random.choice(list(NODE_ORDERS))
    )
    declared = settings_of(type(method.verifier)).values()
    return method.with_settings(**{i.name: _draw(random, i) for i in declared if random.random() > KEPT_AS_IT_IS})


def draw_settings(random: Random, drafter: Drafter) -> dict[str, Setting]:
    """Settings of a drafter within the ranges that it declares, most of them other than the default."""
    declared, drawn = settings_of(type(drafter)), {}
    for names in RISING:
        if set(names) <= declared.keys() and random.random() > KEPT_AS_IT_IS:
            values = sorted(_draw(random, declared[name]) for name in names)
            if values[0] < values[-1]:
                drawn |= dict(zip(names, values, strict=True))
    bound = {name for names in RISING if set(names) <= declared.keys() for name in names}
    for name in drafter.settings():
        if name in ALWAYS or (name not in bound and random.random() > KEPT_AS_IT_IS):
            drawn[name] = _draw(random, declared[name])
    return drawn


def _draw(random: Random, info: SettingInfo) -> Setting:
    if info.name in TEXTS:
        return TEXTS[info.name](random)
    if isinstance(info.default, bool):
        return random.random() < 0.5
    if info.choices:
        return random.choice(list(info.choices))
    accepted = info.accepted
    if isinstance(info.default, int):
        return _whole(random, int(accepted.low), int(accepted.high))
    # The ends now and then, very small ones now and then.
    low, high = accepted.low + OPEN_END * accepted.low_open, accepted.high - OPEN_END * accepted.high_open
    place = random.random()
    if place < 0.1:
        return random.choice((low, high))
    return min(high, max(low, math.exp(random.uniform(-12, 0)))) if place < 0.3 else random.uniform(low, high)


def _nodes(method: Method) -> int:
    """A bound of the nodes of a tree of this method, for the time it takes."""
    drafter: Any = method.drafter
    if hasattr(drafter, "by_level"):
        return sum(math.prod(drafter.by_level[: level + 1]) for level in range(len(drafter.by_level)))
    if hasattr(drafter, "paths"):
        return drafter.paths * max(1, getattr(drafter, "length", 0) + getattr(drafter, "branch", 0))
    return getattr(drafter, "node_budget", getattr(drafter, "length", 1))


def _whole(random: Random, low: int, high: int) -> int:
    """A whole number between two, both included: small ones above all, the ends now and then."""
    if random.random() < 0.1:
        return random.choice((low, low, high))
    return low + int((high - low + 1) ** random.random()) - 1


def _widths(random: Random) -> str:
    widths, nodes, level = [], 0, 1
    for _ in range(_whole(random, 1, 32)):
        width = random.choice((1, 1, 1, 2, 3, _whole(random, 1, 16)))
        if nodes + level * width > 4096:
            break
        level *= width
        nodes += level
        widths.append(width)
    return ",".join(map(str, widths))


def _acceptance(random: Random) -> str:
    rates = [random.random() for _ in range(_whole(random, 1, 16))]
    share = random.random() / sum(rates)
    return ",".join(f"{rate * share:.4f}" for rate in sorted(rates, reverse=True))


def _curve(random: Random) -> str:
    if random.random() < 0.3:
        return f"{random.uniform(0.01, 5):.3f}"
    sizes = sorted(random.sample(range(1, 129), random.randint(2, 5)))
    return " ".join(f"{size}:{random.uniform(0.1, 2) + 0.05 * size:.3f}" for size in sizes)


def _odds(random: Random) -> str:
    return " ".join(f"{math.exp(random.uniform(math.log(0.01), math.log(100))):.4g}" for _ in range(2))


# Settings that are text. What would be measured where they are empty would differ from run to run: they never are.
TEXTS: dict[str, Callable[[Random], str]] = {
    "widths": _widths, "acceptance": _acceptance, "verify_ms": _curve, "level_ms": _curve, "odds": _odds,
}  # fmt: skip
ALWAYS = ("acceptance", "verify_ms", "level_ms", "odds")


MOST_SESSIONS = 5
LONGER = 8  # tokens that a fork may go on past the limit, where the context has room
# What is done with a session on the way. Forks with other trees draw other numbers: sampled texts have none.
ACTIONS = ("fork", "rewind", "release", "peek", "save")
GREEDY_ACTIONS = (*ACTIONS, "switch", "longer", "edit", "edit")


@dataclass(frozen=True)
class Finding:
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
    found: tuple[Finding, ...] = ()


class Player:
    """Plays cases on one pair.

    Args:
        reference: the target as transformers loads it, which `generate` is called on.
    """

    def __init__(self, pair: Pair, reference: Any):
        self.pair, self._reference = pair, reference
        self._judge: MarginJudge | None = None

    def play(self, case: PlayerCase) -> Played:
        """Decode a case; hold its texts against greedy decoding, those of sampled cases against one left alone."""
        vocabulary, own, greedy = self.pair.vocabulary, self.pair.vocabulary.stop_ids, None
        longest = min(case.limits.max_new_tokens + LONGER, self.pair.context - len(case.prompt_ids))
        if case.kind != "sampled" or case.stop_place is not None:
            rows = torch.tensor([case.prompt_ids])
            settings = GenerationConfig(do_sample=False, max_new_tokens=longest, eos_token_id=None, pad_token_id=END)
            with torch.inference_mode():
                text = self._reference.generate(rows, attention_mask=torch.ones_like(rows), generation_config=settings)
            greedy = tuple(text[0, len(case.prompt_ids) :].tolist())
        if case.stop_place is not None:
            vocabulary.stop_ids = own | {greedy[case.stop_place]}
        try:
            expected = greedy
            if case.kind == "sampled":  # the text with whose session nothing is done on the way
                session = DecodeSession(self.pair, case.method, list(case.prompt_ids), case.sampling, case.limits)
                list(session)
                expected = tuple(session.tokens[len(case.prompt_ids) :])
            return self._compare(case, longest, expected)
        finally:
            vocabulary.stop_ids = own

    def _compare(self, case: PlayerCase, longest: int, expected: tuple[int, ...]) -> Played:
        played, found = Played(), []
        for label, session in self._sessions(case, longest, played):
            output = tuple(session.tokens[len(case.prompt_ids) :])
            stops = () if session.limits.ignore_end_of_text else self.pair.vocabulary.stop_ids
            wanted, stopped = _cut(expected, session.limits.max_new_tokens, stops)
            played.outputs += 1
            if output != wanted:
                found.append(self._difference(label, case, output, wanted))
            elif session.stopped != stopped:
                found.append(Finding(False, f"{label}: the text ended as {session.stopped} instead of {stopped}."))
        played.found = tuple(found)
        return played

    def _difference(self, label: str, case: PlayerCase, output: tuple[int, ...], wanted: tuple[int, ...]) -> Finding:
        if case.kind == "sampled":
            return Finding(False, f"{label}: the sampled text is not that of a session left alone.")
        if self._judge is None:
            self._judge = MarginJudge(self.pair.target.with_engine("transformers"))
        difference = explain_difference(self.pair, list(case.prompt_ids), output, wanted, self._judge)
        return Finding(difference.near_tie, f"{label}: {difference.explanation}")

    def _sessions(self, case: PlayerCase, longest: int, played: Played) -> Iterator[tuple[str, DecodeSession]]:
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
            return session.fork(
                draw_method(random, session.sampling), interventions=Interventions()
            )  # they were of another tree
        if action == "longer":
            return session.fork(limits=replace(session.limits, max_new_tokens=longest), interventions=Interventions())
        if action == "rewind" and recorded:
            return session.rewind(random.randint(0, len(session.iterations)))
        if action == "release":
            session.release()
        elif action == "peek" and not session.finished:
            session.peek()
        elif action == "edit" and not session.finished:
            interventions = self._interventions(session, random)
            return session.fork(interventions=interventions) if interventions else None
        elif action == "save" and recorded:
            file = io.BytesIO()
            save_run(session.trace(), file)
            load_run(file)
        return None

    def _interventions(self, session: DecodeSession, random: Random) -> Interventions | None:
        """Nodes put into the next tree and taken out of it, which never change a greedy text."""
        if not session.method.drafter.uses_draft_model:
            return None
        draft, _ = session.fork(interventions=Interventions()).peek()
        paths: dict[int, Path] = {0: ()}
        for node in range(1, draft.tree.size):
            paths[node] = (*paths[int(draft.tree.parents[node])], int(draft.tree.tokens[node]))
        verified = [paths[int(node)] for node in draft.order]
        if len(verified) > 1 and random.random() < 0.5:
            return Interventions(force_out=(random.choice(verified[1:]),))
        room = session.limits.max_new_tokens - session.new_tokens - 1
        path = (*random.choice(verified), random.randrange(WORDS))
        return Interventions(force_in=(path,)) if len(path) <= room and path not in verified else None


def _cut(text: tuple[int, ...], count: int, stops: Container[int]) -> tuple[tuple[int, ...], str]:
    """So many tokens of a text at most, up to its first stop token, and why it ends there."""
    ends = next((place + 1 for place, token in enumerate(text[:count]) if token in stops), None)
    return (text[:count], "length") if ends is None else (text[:ends], "end_of_text")
