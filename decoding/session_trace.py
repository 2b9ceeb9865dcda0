"""What a session has done so far as one record."""

import time
from typing import TYPE_CHECKING

from decoding.hardware import describe_hardware
from decoding.trace import FORMAT_VERSION, RunTrace, Totals

if TYPE_CHECKING:
    from decoding.session import DecodeSession


def session_trace(session: "DecodeSession", own_from: int, peak_memory_bytes: int | None) -> RunTrace:
    """The trace of a session up to the iteration it has reached."""
    pair, method, sampling, text = session.pair, session.method, session.sampling, session.pair.vocabulary.text
    return RunTrace(
        format_version=FORMAT_VERSION,
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        method=method.name,
        label=method.label,
        settings=method.settings(),
        pair=pair.info,
        sampling=sampling.trace(),
        max_new_tokens=session.limits.max_new_tokens,
        prompt_ids=session.prompt_ids,
        prompt_texts=tuple(text(token) for token in session.prompt_ids),
        hardware=describe_hardware(pair.target.device),
        iterations=tuple(session.iterations),
        totals=Totals(
            new_tokens=session.new_tokens,
            prefill_s=session.prefill_s,
            ttft_s=session.ttft_s,
            wall_s=session.elapsed_s,
            stopped=session.stopped,
            peak_memory_bytes=peak_memory_bytes,
        ),
        own_from=own_from,
    )
