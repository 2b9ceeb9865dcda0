"""Full records write their trees when they are read, and hold few rows until then."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest

from decoding.methods.methods import METHODS
from decoding.sampling.sampling import Sampling
from decoding.session import recorder
from decoding.session.session import DecodeSession, Limits
from tests.helpers.same_traces import differences


def test_the_tree_of_a_record_is_written_when_it_is_read(pair, monkeypatch):
    written, fields_of_full, write = [], [], recorder._written

    def counted(tree, text_of):
        written.append(tree)
        fields_of_full.append(write(tree, text_of))
        return fields_of_full[-1]

    monkeypatch.setattr(recorder, "_written", counted)
    prompt, method = pair.vocabulary.encode("One day a little dog"), METHODS["dynatree"]
    late, soon = (DecodeSession(pair, method, prompt, limits=Limits(24, rows=rows)) for rows in ("top", "full"))
    list(late)
    assert not written
    list(soon)
    assert set(recorder.WRITTEN_LATER) == set(fields_of_full[-1])
    assert len(written) == len(soon.iterations)
    written.clear()
    for one, other in zip(late.iterations, soon.iterations, strict=True):
        assert one.waiting_bytes > 0 and one.nodes == other.nodes and one.steps == other.steps
        assert one.waiting_bytes == 0 and dict(one.texts) == dict(other.texts)
        assert np.array_equal(one.target_top_probs, other.target_top_probs, equal_nan=True)
        copy = replace(one, bias="none")
        assert (copy.nodes, copy.waiting_bytes) == (one.nodes, 0)
    assert len(written) == len(late.iterations)
    with pytest.raises(AttributeError, match="no_field"):
        _ = late.iterations[0].no_field


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_trees_that_wait_hold_no_more_rows_than_there_is_room_for(pair, monkeypatch, temperature):
    prompt, method = pair.vocabulary.encode("One day a little dog"), METHODS["dyspec"]
    method = method if temperature else METHODS["dynatree"]

    def decoded(room: int) -> list:
        monkeypatch.setattr("decoding.session.session.UNWRITTEN_BYTES", room)
        limits = Limits(40, ignore_end_of_text=True)
        session = DecodeSession(pair, method, prompt, Sampling(temperature), limits)
        list(session)
        assert sum(trace.waiting_bytes for trace in session.iterations) <= room
        return session.iterations

    held, let_go = decoded(2**30), decoded(0)
    step = weakref.ref(held[0]._read.args[0])
    assert step() is not None and all(trace.waiting_bytes for trace in held)
    assert differences(held, let_go) == []
    gc.collect()
    assert step() is None, "rows go once the tree is written"


def test_rows_go_oldest_first(pair, monkeypatch):
    prompt = pair.vocabulary.encode("One day a little dog")
    session = DecodeSession(pair, METHODS["autoregressive"], prompt, limits=Limits(12, ignore_end_of_text=True))
    row = 4 * pair.logits_size
    monkeypatch.setattr("decoding.session.session.UNWRITTEN_BYTES", 3 * row)
    session.step()
    first = weakref.ref(session.last)
    for _ in range(5):
        session.step()
    assert [trace.waiting_bytes for trace in session.iterations] == [0, 0, 0, row, row, row]
    gc.collect()
    assert first() is None and session.iterations[0].nodes
    assert session.fork().step().waiting_bytes == row


@pytest.mark.parametrize("how", [{"record": "summary"}, {"rows": "full"}, {"rows": "top"}])
def test_a_released_session_holds_no_cache(pair, how):
    session = DecodeSession(pair, METHODS["dynatree"], pair.vocabulary.encode("One day"), limits=Limits(12, **how))
    assert session.last is None
    session.step()
    branch = session.fork()
    held = weakref.ref(session._models.draft_cache)
    session.release()
    gc.collect()
    assert held() is None and branch.last is None and session.last.agreement()[1] > 0
