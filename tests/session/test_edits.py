"""Interventions: exactly when they bias the output, what they do to tree, rows and record, and how they are refused."""

from collections import defaultdict
from copy import deepcopy
from dataclasses import replace
from functools import cache, lru_cache
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks.enumeration import SAMPLED, Tables, all_drafts, all_tables, bias, block_distribution
from benchmarks.table_source import TableSource, path_tokens
from decoding.common.errors import SettingsError
from decoding.drafters import (
    FixedTreeDrafter,
    IIDPathsDrafter,
    LinearDrafter,
    NoDrafter,
    SequoiaDrafter,
)
from decoding.sampling.sampling import Sampling, TargetDistributions
from decoding.session.iteration import bias as bias_of_edits
from decoding.session.iteration import edit_draft, edit_logits, nodes_by_path
from decoding.trace.interventions import Interventions, touches_first_child
from decoding.verifiers import VERIFIERS
from tests.helpers.families import family

SAMPLERS = [name for name, kind in VERIFIERS.items() if not kind.greedy_only]
# Four tokens: where two of three are drawn without replacement, the third one follows from them.
TABLES = all_tables(4, count_random=1)[:2]
GREEDY = Sampling()
TREES = {
    "chain": LinearDrafter(length=2, sampled=True),
    "iid": IIDPathsDrafter(paths=2, length=1),
    "wor": SequoiaDrafter(node_budget=2, max_depth=1, acceptance="0.5,0.3"),
    "deterministic": FixedTreeDrafter(max_depth=1, branching=2, prune_probability=0.0, branch_first_level=True),
    "deep iid": IIDPathsDrafter(paths=2, length=2),
    "deep wor": SequoiaDrafter(node_budget=4, max_depth=2, acceptance="0.5,0.3"),
}
QUICK = ("wor", "deterministic")
PUT_IN = [Interventions(force_in=(path,)) for path in ((0,), (2,), (1, 0), (0, 2))]
TAKEN_OUT = [Interventions(force_out=(path,)) for path in ((0,), (1,), (1, 0), (0, 2))]
PASSED = [Interventions(accept=((token,),)) for token in range(4)]
FAILED = [Interventions(reject=((token,),)) for token in range(4)]


@cache
def drafts(tree: str, place: int):
    return list(all_drafts(TREES[tree], TABLES[place]))


@cache
def plain_distributions(tree: str, verifier: str, place: int, greedy: bool):
    target = one_hot(TABLES[place]) if greedy else TABLES[place]
    return [block_distribution(VERIFIERS[verifier](), draft, target) for draft, _ in drafts(tree, place)]


def one_hot(tables: Tables) -> Tables:
    """The same draft and a target that is sure of its favourites."""
    probs = lambda row: [float(token == int(np.argmax(row))) for token in range(len(row))]  # noqa: E731
    target = {path: probs(row) for path, row in tables.target.items()}
    return replace(tables, target=target, target_default=probs(tables.target_default))


def record_of(draft) -> SimpleNamespace:
    """As much of an iteration's record as tells which child came first."""
    order = draft.order.tolist()
    columns = zip(draft.tree.parents.tolist(), draft.tree.tokens.tolist(), strict=True)
    nodes = tuple(
        SimpleNamespace(node_id=i, parent_id=parent, token_id=token, flat_index=i if i in order else None)
        for i, (parent, token) in enumerate(columns)
    )
    return SimpleNamespace(nodes=nodes, drawn=() if draft.drawn is None else tuple(draft.drawn.tolist()))


def edited(draft, tables: Tables, interventions: Interventions):
    """The draft with edits, None where they do not fit it."""
    try:
        return edit_draft(deepcopy(draft), _Open(tables), interventions, str)
    except SettingsError:
        return None


@lru_cache(maxsize=64)
def edits_of(tree: str, place: int, interventions: Interventions):
    """Of every draft, with the edits or None where they do not fit it, and whether they touch a first child."""
    changed = [edited(draft, TABLES[place], interventions) for draft, _ in drafts(tree, place)]
    return [(each, each is not None and touches_first_child(record_of(each), interventions)) for each in changed]


class _Open(TableSource):
    """A table that answers for a node whose parent another source was asked about."""

    def __init__(self, tables: Tables):
        super().__init__(tables.draft, tables.draft_default)

    def expand(self, tree, nodes):
        self._asked.update(tree.parents[nodes].tolist())
        return super().expand(tree, nodes)


def emitted(
    tree: str, verifier: str, place: int, interventions: Interventions, first: bool | None = None, greedy: bool = False
):
    """Distribution of the block where every draft that the edits fit is edited: (distribution, how many drafts were).

    Args:
        first: edit only where the node is, or is not, the first verified child of its parent.
        greedy: at temperature 0, where the target is sure of its favourites.
    """
    probs, fitted = defaultdict(float), 0
    target = one_hot(TABLES[place]) if greedy else TABLES[place]
    edits = edits_of(tree, place, interventions)
    for number, ((_, chance), (changed, touches_first)) in enumerate(zip(drafts(tree, place), edits, strict=True)):
        if first not in (None, touches_first):
            changed = None
        fitted += changed is not None
        if changed is None:
            blocks = plain_distributions(tree, verifier, place, greedy)[number]
        else:
            blocks = _block_law(verifier, changed, target, interventions)
        for block, share in blocks.items():
            probs[block] += chance * share
    return probs, fitted


def _block_law(verifier: str, draft, target: Tables, interventions: Interventions):
    if not interventions.rows:
        return block_distribution(VERIFIERS[verifier](), draft, target)
    rows = [target.target_distribution(path_tokens(draft.tree, int(node))) for node in draft.order]
    logits = edit_logits(torch.tensor(rows, dtype=torch.float64).log(), draft, interventions)
    forced = SimpleNamespace(target_rows=lambda _draft: TargetDistributions(logits, SAMPLED))
    return block_distribution(VERIFIERS[verifier](), draft, forced)


def allowed(tree: str, verifier: str) -> bool:
    return VERIFIERS[verifier]().refusal(TREES[tree].draft_sampling, SAMPLED) is None


@pytest.mark.parametrize("tree", family(TREES, "iid", *QUICK))
def test_edits_bias_the_output_exactly_where_they_say_so(tree):
    for verifier in filter(lambda name: allowed(tree, name), SAMPLERS):
        for kind, first in product((PUT_IN, TAKEN_OUT), (True, False)):
            worst = fits = 0
            said = bias_of_edits(kind[0], VERIFIERS[verifier](), SAMPLED, first)
            for interventions, place in product(kind, range(len(TABLES))):
                probs, fitted = emitted(tree, verifier, place, interventions, first)
                worst, fits = max(worst, bias(probs, TABLES[place])), fits + fitted
                if said and worst > 1e-4:  # that there is a bias takes one case; that there is none, all
                    break
            case = (tree, verifier, "in" if kind is PUT_IN else "out", first, worst, fits)
            if not fits:
                continue
            assert worst > 1e-4 if said else worst < 1e-9, case


@pytest.mark.parametrize("tree", family(TREES, *QUICK))
def test_at_temperature_0_no_tree_can_bias_the_output(tree):
    for verifier in filter(lambda name: allowed(tree, name), [*SAMPLERS, "greedy"]):
        fits = 0
        for interventions, place in product([*PUT_IN, *TAKEN_OUT], range(len(TABLES))):
            probs, fitted = emitted(tree, verifier, place, interventions, greedy=True)
            fits += fitted
            assert bias(probs, one_hot(TABLES[place])) < 1e-9, (verifier, interventions)
            assert bias_of_edits(interventions, VERIFIERS[verifier](), GREEDY) == ""
        assert fits, "no draft was edited"


@pytest.mark.parametrize("tree", family(TREES, *QUICK))
def test_forced_verdicts_bias_the_output_of_every_verifier(tree):
    for verifier in filter(lambda name: allowed(tree, name), SAMPLERS):
        for kind in (PASSED, FAILED):
            distributions = (
                (emitted(tree, verifier, i, interventions)[0], tables)
                for interventions in kind
                for i, tables in enumerate(TABLES)
            )
            assert any(bias(probs, tables) > 1e-4 for probs, tables in distributions), (verifier, kind[0])
            assert "target's distribution" in bias_of_edits(kind[0], VERIFIERS[verifier](), GREEDY)


ROOT, PROBS = 9, [0.4, 0.3, 0.2, 0.1]


def drafted(drafter=TREES["deterministic"], depth_limit: int = 100):
    source = TableSource({}, PROBS, depth_limit)
    return drafter.draft(drafter.start([]), source, ROOT, None), source


def test_a_node_put_in_stands_last_among_its_siblings_with_its_draft_probability():
    draft, source = drafted()
    before, asked = nodes_by_path(draft.tree), source.forwards
    changed = edit_draft(draft, source, Interventions(force_in=((3,), (1, 2), (1, 2, 0))), str)
    after = nodes_by_path(changed.tree)
    assert {path: after[path] for path in before} == before
    assert changed.tree.draft_probs[[after[3,], after[1, 2], after[1, 2, 0]]].tolist() == pytest.approx([0.1, 0.2, 0.4])
    assert source.forwards == asked + 1, "only the row after the new leaf had to be asked for"
    assert set(changed.order.tolist()) == set(range(changed.tree.size))
    assert [int(node) for node in changed.order if changed.tree.parents[node] == 0][-1] == after[3,]
    assert len(changed.rows) == len(draft.rows) + 1 and changed.tree.level[after[1, 2]] == len(draft.rows)


def test_what_was_pruned_can_be_put_in_and_what_is_taken_out_goes_with_all_below_it():
    pruning = FixedTreeDrafter(max_depth=1, branching=2, prune_probability=0.13, branch_first_level=True)
    draft, source = drafted(pruning)
    ids = nodes_by_path(draft.tree)
    assert ids[1, 1] not in draft.order  # 0.3 x 0.3
    changed = edit_draft(draft, source, Interventions(force_in=((1, 1),), force_out=((0,),)), str)
    assert {path for path, node in ids.items() if node in changed.order} == {(), (1,), (1, 1)}
    assert changed.tree.size == draft.tree.size


def test_draws_that_are_listed_list_the_new_node_last():
    drafter = TREES["iid"]
    draft, _ = next(all_drafts(drafter, TABLES[0]))
    there = {path[0] for path in nodes_by_path(draft.tree) if path}
    token = min(set(range(4)) - there)
    changed = edit_draft(deepcopy(draft), _Open(TABLES[0]), Interventions(force_in=((token,),)), str)
    assert changed.drawn.tolist() == [*draft.drawn.tolist(), changed.tree.size - 1]


def test_rows_of_forced_verdicts_are_one_hot_or_lack_the_token():
    draft, _ = drafted()
    rows = torch.tensor([PROBS] * len(draft.order), dtype=torch.float64).log()
    interventions = Interventions(accept=((1, 0),), reject=((0, 1),))
    target = TargetDistributions(edit_logits(rows, draft, interventions), Sampling(temperature=0.5))
    ids = nodes_by_path(draft.tree)
    row = {path: draft.order.tolist().index(node) for path, node in ids.items()}
    assert target.probs(row[()]).tolist() == [0, 1, 0, 0] and target.probs(row[1,]).tolist() == [1, 0, 0, 0]
    squared = [p * p if token != 1 else 0.0 for token, p in enumerate(PROBS)]
    assert target.probs(row[0,]).tolist() == pytest.approx([p / sum(squared) for p in squared])
    assert rows.isfinite().all(), "the rows given stay as they were"
    assert edit_logits(rows, draft, Interventions(force_in=((2,),))) is rows


@pytest.mark.parametrize(
    ("interventions", "says"),
    [
        (Interventions(force_in=((0,),)), "'0' is already in the tree"),
        (Interventions(force_in=((2, 1),)), "The node '2' is not in the tree: force it in first"),
        (Interventions(force_in=((0, 4),)), "There is no token 4: ids go from 0 to 3"),
        (Interventions(force_in=((0, 0, 1),)), "beyond the length limit: raise max_new_tokens"),
        (Interventions(force_out=((3,),)), "The node '3' is not in the tree of this iteration"),
        (Interventions(accept=((0, 3),)), "The node '0' > '3' is not in the tree"),
        (Interventions(reject=((1, 1),)), "drafted but not verified"),
    ],
)
def test_edits_that_do_not_fit_the_tree_are_refused(interventions, says):
    pruning = FixedTreeDrafter(max_depth=1, branching=2, prune_probability=0.1, branch_first_level=True)
    draft, source = drafted(pruning, depth_limit=2)
    with pytest.raises(SettingsError, match=says):
        edit_draft(draft, source, interventions, str)


def test_a_method_that_drafts_nothing_takes_no_node():
    draft, source = drafted(NoDrafter())
    with pytest.raises(SettingsError, match="has no draft: choose another"):
        edit_draft(draft, source, Interventions(force_in=((1,),)), str)


@pytest.mark.parametrize(
    ("interventions", "says"),
    [
        ({"force_in": ((),)}, "The root is already committed"),
        ({"accept": ((0, 1), (0, 2))}, "Two siblings cannot both"),
        ({"accept": ((0, 1),), "reject": ((0,),)}, "cannot be both force-accepted and force-rejected"),
        ({"accept": ((0, 1),), "force_out": ((0,),)}, "inside a branch that is forced out"),
        ({"force_in": ((0, 1),), "force_out": ((0,),)}, "inside a branch that is forced out"),
    ],
)
def test_edits_that_contradict_each_other_are_refused(interventions, says):
    with pytest.raises(SettingsError, match=says):
        Interventions(**interventions)


def test_a_row_of_which_nothing_is_left_is_refused():
    draft, _ = drafted()
    rows = torch.full((len(draft.order), 4), -torch.inf)
    rows[:, 0] = 0.0
    with pytest.raises(SettingsError, match="leave at least one"):
        edit_logits(rows, draft, Interventions(reject=((0,),)))
    with pytest.raises(SettingsError, match="cannot emit the token"):
        edit_logits(rows, draft, Interventions(accept=((1,),)))


def test_words_name_every_edit():
    interventions = Interventions(force_in=((1, 2),), reject=((0,),))
    assert interventions.words(lambda token: f"‘·t{token}’") == "‘·t2’ forced in · ‘·t0’ force-rejected"
    assert not Interventions() and interventions and list(interventions) == [("force_in", (1, 2)), ("reject", (0,))]
