"""The prefix that Tune live drafts on: where its text comes from, and the session that stands at its end."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from decoding.errors import PromptError, require
from pages.ui.state import PromptChoice, Run, encode_prompt

if TYPE_CHECKING:
    from decoding.pair import Pair
    from decoding.session import DecodeSession
    from pages.ui.worker import Job

TEXT_TOKENS = 64


@dataclass(frozen=True, eq=False)
class Source:
    """Where the prefix comes from: a prompt whose continuation is decoded here, or a run of another page.

    Attributes:
        key: tells sources apart; a run that has grown is another one.
    """

    key: tuple
    prompt: PromptChoice | None = None
    run: Run | None = None


def prompt_source(prompt: PromptChoice) -> Source:
    """The prompt as picked."""
    return Source(("prompt", prompt), prompt=prompt)


def run_source(run: Run) -> Source:
    """The text of a run: its prompt and what it has decoded so far."""
    return Source(("run", run.key, len(run.trace.iterations)), run=run)


@dataclass(frozen=True)
class Text:
    """Prompt and continuation as token ids; every prefix of them that holds the prompt can be tried."""

    key: tuple
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]

    @property
    def last_position(self) -> int:
        """The largest position: the last token may end the text, so it is never part of a prefix."""
        return max(len(self.output_ids) - 1, 0)


def read_text(pair: "Pair", source: Source, job: "Job") -> Text:
    """Token ids of a source; a prompt is continued for `TEXT_TOKENS` tokens as greedy decoding does.

    Raises:
        DraftscopeError: the prompt does not fit the pair, or the run is another pair's.
    """
    from decoding.methods import METHODS
    from decoding.session import DecodeSession, Limits

    if source.run is not None:
        trace = source.run.trace
        require(
            trace.pair.name == pair.info.name,
            f"The run in Step through was decoded by {trace.pair.name}, the pair in memory is {pair.info.name}: "
            "start a run there, or take the prefix from a prompt.",
        )
        return Text(source.key, trace.prompt_ids, trace.output_ids)
    ids = encode_prompt(pair, source.prompt)
    room = pair.context - len(ids) - 1
    if room < 1:
        raise PromptError(f"The prompt has {len(ids)} tokens and the context is {pair.context}: shorten the prompt.")
    session = DecodeSession(pair, METHODS["linear"], ids, limits=Limits(min(TEXT_TOKENS, room), record="none"))
    while not session.finished and job.go_on():
        session.step()
        job.report(session.new_tokens, TEXT_TOKENS, "continuing the prompt")
    return Text(source.key, tuple(ids), tuple(session.tokens[len(ids) :]))


def base_session(pair: "Pair", prefix: tuple[int, ...]) -> "DecodeSession":
    """A session that stands at the end of a prefix with filled caches, ready to be forked."""
    from decoding.methods import METHODS
    from decoding.session import DecodeSession, Limits

    if len(prefix) < 2:
        return DecodeSession(pair, METHODS["linear"], list(prefix), limits=Limits(1, record="none"))
    limits = Limits(1, ignore_end_of_text=True, record="none")
    session = DecodeSession(pair, METHODS["linear"], list(prefix[:-1]), limits=limits)
    session.step()
    # The last token has no row in either cache yet, so it may be any: here it is the one that the prefix ends with.
    session.tokens[-1] = prefix[-1]
    return session
