"""The data of Tune live: one prefix, the trees that different settings draft on it, and their points in the chart.

All settings start from forks of one session, so that two trees differ only by the setting.
"""

from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import streamlit as st

import decoding
from decoding.common.errors import PromptError, SettingsError
from decoding.common.formats import duration, plural
from decoding.trace.metrics import measure_run
from decoding.trace.records import IterationTrace
from pages.ui.common.models import loaded_pair, manager
from pages.ui.common.state import PromptChoice, Run, encode_prompt, own_pair, trace_at
from pages.ui.common.worker import is_busy, start_job
from viz.branches.diff import same_tree, same_work
from viz.charts.methods import ITERATION, WHOLE, Tried

if TYPE_CHECKING:
    from decoding.methods.method import Method
    from decoding.models.pair import Pair
    from decoding.sampling.draws import GeneratorDraws
    from decoding.sampling.sampling import Sampling
    from decoding.session.session import DecodeSession
    from pages.ui.common.worker import ModelTask


@dataclass(eq=False)
class Trial:
    """The result of one setting on the prefix. `repeats`: measured, without their trees; empty until measured."""

    number: int
    method: "Method"
    iteration: IterationTrace
    repeats: tuple[IterationTrace, ...] = ()

    @property
    def seconds(self) -> tuple[float, ...]:
        """Measured times of the repeats."""
        return tuple(each.times.total_s for each in self.repeats)

    def worked_like(self, other: "Trial") -> bool:
        """Whether both did the same: settings of one drafter that lead to the same tree, and nothing else changed."""
        drafter_apart = replace(self.method, drafter=other.method.drafter) == other.method
        return drafter_apart and same_work(self.iteration, other.iteration)


def whole_words(method: "Method", metrics, loops: int, parted: int | None, greedy: bool) -> str:
    """The last whole generation as text."""
    rate = metrics.decode_throughput
    speed = "too short for a speed without prefill" if rate is None else f"{rate:,.0f} tokens/s without prefill"
    parts = [
        f"{decoding.method_label(method)}: {speed}, "
        f"{metrics.throughput:,.0f} with it; {metrics.new_tokens} tokens in {plural(metrics.iterations, 'iteration')}, "
        f"{metrics.tokens_per_iteration:.2f} tokens each. This is the average over the text; “tokens / s here” is one "
        "iteration at one place."
    ]
    if loops:
        parts.append(f"{plural(loops, 'iteration')} inside a repeated passage flatter{'s' if loops == 1 else ''} it.")
    if not greedy:
        parts.append("Its tokens were sampled, so that they cannot be compared with the prefix's one by one.")
    elif parted is None:
        parts.append("Same text as that of the prefix.")
    else:
        parts.append(f"Its text diverges from that of the prefix at token {parted + 1}: Compare shows by what margin.")
    return " ".join(parts)


TEXT_TOKENS = 64


@dataclass(frozen=True, eq=False)
class PrefixSource:
    """The source of the prefix: a prompt that is continued on this page, or a run of another page.

    `key` identifies the source: a longer run is a different one.
    """

    key: tuple
    prompt: PromptChoice | None = None
    run: Run | None = None

    @property
    def last_position(self) -> int:
        """The largest position before its text is read: a run has its text already, a prompt is continued so far."""
        return (TEXT_TOKENS if self.run is None else len(self.run.trace.output_ids)) - 1

    def iteration_at(self, position: int) -> IterationTrace | None:
        """The iteration of the run that began here, None without one."""
        if self.run is None:
            return None
        length = len(self.run.trace.prompt_ids) + position
        return next((each for each in self.run.trace.iterations if each.prefix_length == length), None)

    def draws(self, position: int, seed: int) -> "GeneratorDraws":
        """The random numbers of a seed: where the run has that seed too, from those on that it drew here."""
        from decoding.replay.stored_state import draws_before
        from decoding.sampling.draws import GeneratorDraws

        iteration = self.iteration_at(position)
        if iteration is not None:
            made = trace_at(self.run, iteration.index)
            if made.sampling.seed == seed:
                try:
                    return draws_before(made, iteration.index)
                except SettingsError:
                    pass  # another branch drew here: its record alone tells where; the page says that the trees differ
        return GeneratorDraws(seed)


@dataclass(frozen=True)
class PrefixText:
    """Prompt and continuation as token ids; every prefix that contains the prompt can be tried."""

    key: tuple
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]

    @property
    def last_position(self) -> int:
        """The largest position: the last token may end the text, so it is never part of a prefix."""
        return max(len(self.output_ids) - 1, 0)


def within(position: int, last: int) -> int:
    """A position in a text that has fewer: the middle, as there is nothing to draft at its end."""
    return position if position <= last else last // 2


def read_text(pair: "Pair", source: PrefixSource, job: "ModelTask") -> PrefixText:
    """Token ids of a source; a prompt is continued for `TEXT_TOKENS` tokens as greedy decoding does.

    Raises:
        DraftscopeError: the prompt does not fit the pair, or the run was decoded by another pair.
    """
    from decoding.session.session import DecodeSession, Limits

    if source.run is not None:
        trace = source.run.trace
        own_pair(trace, job, "take the prefix from a prompt")
        return PrefixText(source.key, trace.prompt_ids, trace.output_ids)
    ids = encode_prompt(pair, source.prompt)
    room = pair.context - len(ids) - 1
    if room < 1:
        raise PromptError(f"The prompt has {len(ids)} tokens and the context is {pair.context}: shorten the prompt.")
    session = DecodeSession(pair, decoding.METHODS["linear"], ids, limits=Limits(min(TEXT_TOKENS, room), record="none"))
    while not session.finished and job.go_on():
        session.step()
        job.report(session.new_tokens, TEXT_TOKENS, "continuing the prompt")
    return PrefixText(source.key, tuple(ids), tuple(session.tokens[len(ids) :]))


def base_session(pair: "Pair", prefix: tuple[int, ...]) -> "DecodeSession":
    """A session at the end of a prefix with filled caches, ready to be forked."""
    from decoding.session.session import DecodeSession, Limits

    if len(prefix) < 2:
        return DecodeSession(pair, decoding.METHODS["linear"], list(prefix), limits=Limits(1, record="none"))
    limits = Limits(1, ignore_end_of_text=True, record="none")
    session = DecodeSession(pair, decoding.METHODS["linear"], list(prefix[:-1]), limits=limits)
    session.step()
    # The last token has no slot in either cache yet, so it can be replaced by the last token of the prefix.
    session.tokens[-1] = prefix[-1]
    return session


MOST_DRAFTED_DEPTH = 128
REPEATS = 5
FEWEST_REPEATS = 3
REPEAT_LIMIT_S = 0.8
TAIL_TOKENS = 24
DRAFT_SLOT, MEASURE_SLOT, WHOLE_SLOT = "tune_draft", "tune_measure", "tune_whole"


@dataclass(frozen=True, eq=False)
class Wish:
    """The request of the page: two methods on the text of a source, `position` tokens after its prompt."""

    source: PrefixSource
    position: int
    pinned: "Method"
    method: "Method"
    sampling: "Sampling"

    @property
    def key(self) -> tuple:
        """Identifies the request."""
        return self.source.key, self.position, self.pinned, self.method, self.sampling, manager().generation


@dataclass(eq=False)
class Bench:
    """The state of Tune live in one browser session; only the worker changes it, one job at a time.

    Attributes:
        generation: which load of the model manager it belongs to.
        position: length of the prefix of `base`. sampling: of the trials. trials: by method, on this prefix.
        shown: the last pinned and current trial that could be drawn.
        made_here: the iteration of the run that began at this prefix, None without one.
        iteration_points, whole_points: of this prefix, of this text.
        measured: seconds of two trials repeated in turn, by their numbers.
    """

    generation: int = -1
    text: PrefixText | None = None
    position: int = -1
    sampling: "Sampling | None" = None
    base: "DecodeSession | None" = None
    trials: dict["Method", Trial] = field(default_factory=dict)
    shown: tuple[Trial, Trial] | None = None
    made_here: IterationTrace | None = None
    iteration_points: dict["Method", Tried] = field(default_factory=dict)
    whole_points: list[Tried] = field(default_factory=list)
    whole_words: str = ""
    measured: dict[tuple[int, int], tuple[tuple[float, ...], tuple[float, ...]]] = field(default_factory=dict)
    count: int = 0

    def ready(self, wish: Wish) -> bool:
        """Whether everything for a request is drafted."""
        text = self.text
        if text is None or text.key != wish.source.key or self.generation != manager().generation:
            return False
        stands = self.position == within(wish.position, text.last_position) and self.sampling == wish.sampling
        return stands and wish.method in self.trials and wish.pinned in self.trials

    def draft(self, wish: Wish, job: "ModelTask") -> None:
        """Prepare a request: text, base session and the two trees, as far as they are missing."""
        pair, generation = loaded_pair(job), manager().generation
        if self.text is None or self.text.key != wish.source.key or self.generation != generation:
            text = read_text(pair, wish.source, job)
            if job.cancelled:
                return
            self.text, self.generation, self.position = text, generation, -1
            self.whole_points, self.whole_words = [], ""
        position = within(wish.position, self.text.last_position)
        if self.position != position or self.sampling != wish.sampling:
            self.trials, self.iteration_points, self.measured = {}, {}, {}
            self.sampling = wish.sampling
        if self.position != position:
            prefix = self.text.prompt_ids + self.text.output_ids[:position]
            self.base, self.position = base_session(pair, prefix), position
        self.made_here = wish.source.iteration_at(position)
        self.base.begin_draws(wish.source.draws(position, wish.sampling.seed))
        # Only the trees on screen are stored: a setting that is tried again is drafted again.
        wanted = (wish.pinned, wish.method)
        self.trials = {method: self.trials[method] for method in wanted if method in self.trials}
        for method in wanted:
            if method not in self.trials:
                self.count += 1
                self.trials[method] = Trial(self.count, method, self._fork(method, "full").step())

    def measure(self, pair: tuple[Trial, Trial]) -> None:
        """Repeat two trials in turn without recording, so that disturbances affect both equally.

        Drafting the trees was the warm-up. If both are the same trial, it is measured once. Where both did the same
        work, all repeats are of both: what would tell them apart is noise.
        """
        if any(self.trials.get(trial.method) is not trial for trial in pair):
            return  # the prefix has changed meanwhile
        made: dict[int, list[IterationTrace]] = {trial.number: [] for trial in pair}
        started = perf_counter()
        for repeat in range(REPEATS):
            if repeat >= FEWEST_REPEATS and perf_counter() - started > REPEAT_LIMIT_S:
                break
            for trial in dict.fromkeys(pair):
                made[trial.number].append(self._fork(trial.method, "none").step())
        alike = pair[0].worked_like(pair[1])
        for trial in pair:
            trial.repeats = (
                tuple(each for repeats in made.values() for each in repeats) if alike else tuple(made[trial.number])
            )
            iteration, typical_s = trial.iteration, median(trial.seconds)
            tokens, accepted = len(iteration.committed_ids), len(iteration.accepted)
            details = (
                f"{accepted} of {plural(iteration.drafted, 'drafted node')} accepted, {plural(tokens, 'token')} "
                f"committed in {duration(typical_s)} (median of {len(trial.seconds)})"
            )
            share = accepted / iteration.drafted if iteration.drafted else 0.0
            label = decoding.method_label(trial.method)
            self.iteration_points[trial.method] = Tried(label, tokens / typical_s, share, ITERATION, details)
        self.measured[pair[0].number, pair[1].number] = pair[0].seconds, pair[1].seconds

    def generate(self, method: "Method", tokens: int, job: "ModelTask") -> None:
        """Decode the whole text from the prompt with a method and add its point, unless cancelled."""
        from decoding.session.session import DecodeSession, Limits

        job.report(0, tokens, f"0 of at most {tokens} tokens")
        pair, text = manager().pair(), self.text
        limits = Limits(tokens, record="summary")
        session = DecodeSession(pair, method, list(text.prompt_ids), self.sampling, limits)
        while not session.finished:
            if not job.go_on():
                return
            session.step()
            job.report(session.new_tokens, tokens, f"{session.new_tokens} of at most {tokens} tokens")
        run = session.trace()
        metrics = measure_run(run)
        loops = sum(iteration.in_loop for iteration in run.iterations)
        details = (
            f"whole generation: {metrics.new_tokens} tokens in {metrics.iterations} iterations, "
            f"{metrics.accepted or 0} of {plural(metrics.drafted or 0, 'drafted node')} accepted"
            + (f", {plural(loops, 'iteration')} in a loop" if loops else "")
        )
        if (speed := metrics.decode_throughput) is not None:
            share = metrics.acceptance_drafted or 0.0
            self.whole_points.append(Tried(decoding.method_label(method), speed, share, WHOLE, details))
        greedy = self.sampling is None or self.sampling.greedy
        pairs = enumerate(zip(run.output_ids, text.output_ids, strict=False))
        parted = next((place for place, (one, other) in pairs if one != other), None)
        self.whole_words = whole_words(method, metrics, loops, parted, greedy)

    @property
    def own_pinned(self) -> bool:
        """Whether the pinned tree is the one that the run had here."""
        return self.made_here is not None and same_tree(self.made_here, self.shown[0].iteration)

    def tail(self) -> str:
        """The end of the prefix as text."""
        vocabulary = self.base.pair.vocabulary
        return "".join(vocabulary.text(token) for token in self.base.tokens[-TAIL_TOKENS:])

    def _fork(self, method: "Method", record: str) -> "DecodeSession":
        from decoding.session.session import Limits

        room = self.base.pair.context - len(self.base.tokens)
        limits = Limits(self.base.new_tokens + min(room, MOST_DRAFTED_DEPTH), record=record)
        return self.base.fork(method, limits, self.sampling, draws_go_on=True)


def current_bench() -> Bench:
    """The bench of this browser session."""
    return st.session_state.setdefault("tune_bench", Bench())


def fulfil(bench: Bench, wish: Wish) -> bool:
    """Show a request, drafting what is missing in the worker; False while it works, if it failed or was cancelled."""
    if not bench.ready(wish):
        _once(DRAFT_SLOT, wish.key, "Drafting", lambda job: bench.draft(wish, job))
    if not bench.ready(wish):
        return False
    bench.shown = bench.trials[wish.pinned], bench.trials[wish.method]
    return True


def measure_shown(bench: Bench) -> None:
    """Measure the two trials shown in the worker, once."""
    shown = bench.shown
    numbers = shown[0].number, shown[1].number
    if numbers not in bench.measured:
        _once(MEASURE_SLOT, numbers, "Measuring", lambda job: bench.measure(shown))


def _once(slot: str, key: tuple, title: str, function) -> None:
    """Start a job unless the last one of the slot had the same key: a failed job is not retried automatically.

    Nothing starts during a whole generation: the page is redrawn when that ends.
    """
    if st.session_state.get(f"{slot}_key") != key and not is_busy(WHOLE_SLOT):
        st.session_state[f"{slot}_key"] = key
        start_job(slot, title, function)
