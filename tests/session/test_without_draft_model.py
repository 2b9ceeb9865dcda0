"""A drafter that asks no model: the first pass of the target reads the prompt and its tree together."""

from dataclasses import dataclass

import numpy as np
import pytest

from decoding import METHODS, DecodeSession
from decoding.common.errors import SettingsError
from decoding.drafters.base import Drafter, TreeBuilder
from decoding.methods.method import Method
from decoding.session.session import Limits
from decoding.trace.interventions import Interventions

TOKENS, WRONG = 8, 7


@dataclass(frozen=True)
class Foreseen(Drafter):
    """Knows the text; drafts a wrong token first, and beside it the right ones in a row."""

    uses_draft_model = False
    text: tuple[int, ...] = ()

    def start(self, prompt_ids):
        return len(prompt_ids)

    def draft(self, state, source, root_token, draws):
        builder, node = TreeBuilder(source, root_token), np.zeros(1, dtype=np.int64)
        builder.tree.append(node, np.array([WRONG]), np.array([0.5]))
        for token in self.text[state : state + min(3, source.depth_limit)]:
            node = builder.tree.append(node, np.array([token]), np.array([0.5]))
        return builder.finish(self.draft_sampling, state, self.settings())

    def observe(self, state, outcome):
        return state + len(outcome.tokens), None


@pytest.fixture(scope="module")
def plain(embedded):
    session = DecodeSession(
        embedded, METHODS["autoregressive"], embedded.vocabulary.encode("One day, a little dog saw"),
        limits=Limits(TOKENS, rows="full"),
    )  # fmt: skip
    list(session)
    return session


def foreseen(embedded, plain, policy: str = "compaction") -> DecodeSession:
    method = Method("foreseen", "Foreseen", "", "", Foreseen(text=tuple(plain.tokens)), cache_policy=policy)
    limits = Limits(TOKENS, rows="full")
    return DecodeSession(embedded, method, list(plain.prompt_ids), limits=limits)


@pytest.mark.parametrize("policy", ["compaction", "rebuild"])
def test_a_tree_beside_the_prompt_sees_the_prompt_and_its_own_branch(embedded, plain, policy):
    session = foreseen(embedded, plain, policy)
    first = session.step()
    assert first.accepted == (2, 3, 4) and first.draft_forwards == 0
    assert first.kv_target.slots_written == len(plain.prompt_ids) + 4
    rows = first.target_logits[[0, 2, 3, 4]]
    expected = np.stack([each.target_logits[0] for each in plain.iterations[:4]])
    assert np.abs(rows - expected).max() < 1e-3
    list(session)
    assert session.tokens == plain.tokens
    assert len(session.iterations) == 2 and all(each.kv_draft is None for each in session.iterations)


def test_nothing_can_be_forced_in_below_a_node_that_no_model_was_asked_about(embedded, plain):
    session = foreseen(embedded, plain)
    with pytest.raises(SettingsError, match="asks no draft model: choose one that does"):
        session.fork(interventions=Interventions(force_in=((WRONG + 1,),))).step()
