"""What stood behind an iteration of a recorded run: method, sampling, the drafter's state, the draws."""

from dataclasses import replace
from typing import Any

import numpy as np

from decoding.checkpoints import Standing, advanced
from decoding.drafters.base import Drafter, Outcome
from decoding.drafters.dynatree import Adapted, DynaTreeDrafter
from decoding.drafters.hardware_aware import FORGETTING, HardwareAwareDrafter, Learned
from decoding.drafters.rate_search import acceptance, tree_costs
from decoding.errors import SettingsError
from decoding.methods import METHODS, Method
from decoding.sampling import GeneratorDraws, Sampling
from decoding.token_tree import TokenTree
from decoding.trace import IterationTrace, RunTrace


def iteration_at(run: RunTrace, index: int) -> IterationTrace:
    """The iteration of a run with this index.

    Raises:
        SettingsError: there is none.
    """
    found = next((each for each in run.iterations if each.index == index), None)
    if found is None:
        known = [each.index + 1 for each in run.iterations]  # counted as the screen does
        there = f"it has {known[0]} to {known[-1]}" if known else "it has none"
        raise SettingsError(f"This run has no iteration {index + 1}: {there}.")
    return found


def method_of(run: RunTrace) -> Method:
    """The method of a run with its settings, the measured ones included.

    Raises:
        SettingsError: this program does not know it.
    """
    if run.method not in METHODS:
        raise SettingsError(f"This program has no method {run.method!r}: choose one of {', '.join(METHODS)}.")
    return replace(METHODS[run.method].with_settings(**run.settings), label=run.label)


def sampling_of(run: RunTrace) -> Sampling:
    """The sampling of a run."""
    kept = run.sampling
    return Sampling(kept.temperature, kept.top_p, kept.draft_temperature, kept.seed)


def filled_in(method: Method, known: Method) -> Method:
    """The method with what was measured for another one of its kind, where its own is left empty to be measured."""
    if type(method.drafter) is not type(known.drafter):
        return method
    measured = {
        name: value
        for name, value in known.drafter.settings().items()
        if isinstance(value, str) and value and method.drafter.settings()[name] == ""
    }
    return replace(method, drafter=method.drafter.with_settings(**measured)) if measured else method


def standing_before(run: RunTrace, index: int) -> Standing:
    """How an iteration was made, as the record alone tells.

    Raises:
        SettingsError: there is no such iteration, or this program does not know the method.
    """
    method, sampling = method_of(run), sampling_of(run)
    return Standing(method, sampling, state_before(run, index, method.drafter), draws_before(run, index))


def draws_before(run: RunTrace, index: int) -> GeneratorDraws:
    """The draws as they stood before an iteration: the run's seed, gone on by what was drawn since.

    A fork with another seed begins its draws anew, so the recorded numbers decide from which iteration on to count.
    """
    first = GeneratorDraws(run.sampling.seed)
    recorded = iteration_at(run, index).draws
    uniform = recorded[0].uniform if recorded else None
    counts = [len(each.draws) for each in run.iterations if each.index < index]
    for begins in range(len(counts) + 1):
        count = sum(counts[begins:])
        draws = advanced(first, count)
        probe = draws.fork()
        probe.accept(0.0)
        if uniform is None or probe.last_uniform == uniform:
            return draws
    return advanced(first, sum(counts))


def state_before(run: RunTrace, index: int, drafter: Drafter) -> Any:
    """The state of the run's own drafter before an iteration, as its record tells."""
    state = drafter.start(list(run.prompt_ids))
    if isinstance(drafter, DynaTreeDrafter):
        return _adapted(run, index, drafter, state)
    if isinstance(drafter, HardwareAwareDrafter):
        for iteration in _own_iterations(run, index, drafter, moving={"odds"}):
            state = _learned(drafter, state, iteration)
    return state


def _adapted(run: RunTrace, index: int, drafter: DynaTreeDrafter, start: Adapted) -> Adapted:
    """What history had made of the settings, and the window it looked at."""
    own = _own_iterations(run, index, drafter, moving=set(start.values()))
    if not own or own[-1].history is None:
        return start
    return replace(start, **own[-1].history.after, window=own[-1].history.window)


def _learned(drafter: HardwareAwareDrafter, state: Learned, iteration: IterationTrace) -> Learned:
    """The state after an iteration: the tokens and seconds that its tree was to make, then what its outcome taught."""
    tree, order = recorded_tree(iteration), np.array(iteration.flatten_order)
    costs, factors = tree_costs(drafter.verify_ms, drafter.level_ms, drafter.node_budget), np.exp(state.log_odds)
    after = replace(state, idle=state.idle + 1)
    widths = np.bincount(tree.level[tree.level >= 0])
    if len(widths):
        parents = tree.parents[order[1:]]
        first = tree.draft_probs[order[1:]] >= tree.confidence[parents]
        chances = acceptance(tree.draft_probs[order[1:]], np.where(first, factors[0], factors[1]))
        values = np.ones(tree.size)
        for node, parent, chance in zip(order[1:], parents, chances, strict=True):
            values[node] = values[parent] * chance
        tokens = 1.0 + float(values[order[1:]].sum())
        seconds = float(costs.verify_s[len(order) - 1] + costs.level_s[widths].sum())
        after = replace(
            state, tokens=FORGETTING * state.tokens + tokens, seconds=FORGETTING * state.seconds + seconds, idle=0
        )
    return drafter.observe(replace(after, drafted=(tree, order)), _outcome(iteration))[0]


def recorded_tree(iteration: IterationTrace) -> TokenTree:
    """The draft tree of a recorded iteration with what its drafter noted of confidence and levels."""
    nodes = iteration.nodes
    tree = TokenTree(nodes[0].token_id, len(nodes))
    rest = nodes[1:]
    tree.append(
        np.array([node.parent_id for node in rest], dtype=np.int64),
        np.array([node.token_id for node in rest], dtype=np.int64),
        np.array([node.draft_probability for node in rest], dtype=np.float64),
    )
    tree.confidence[:] = [np.nan if node.confidence is None else node.confidence for node in nodes]
    tree.level[:] = [-1 if node.draft_level is None else node.draft_level for node in nodes]
    return tree


def _outcome(iteration: IterationTrace) -> Outcome:
    accepted = iteration.accepted
    return Outcome(
        accepted=len(accepted),
        committed=len(iteration.committed_ids),
        drafted=iteration.drafted,
        verified=iteration.verified,
        depth=iteration.tree_depth,
        path=accepted,
    )


def _own_iterations(run: RunTrace, index: int, drafter: Drafter, moving: set[str]) -> list[IterationTrace]:
    """The iterations before `index` that the run's drafter made: those of a fork's parent may be another's.

    Args:
        moving: settings that history moves, so that they tell nothing.
    """
    mine = {name: value for name, value in drafter.settings().items() if name not in moving}
    own: list[IterationTrace] = []
    for iteration in reversed([each for each in run.iterations if each.index < index]):
        if {name: value for name, value in iteration.settings.items() if name not in moving} != mine:
            break
        own.insert(0, iteration)
    return own
