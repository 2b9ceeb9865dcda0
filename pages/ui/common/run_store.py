"""Runs by their ids, shared by all sessions of the server: the latest in memory, and files that outlive the server.

    store().put(run)        # from now on it is found; its file is written once nothing was decoded for a moment
    store().find(run_id)    # the run itself, while it is in memory
    store().read(run_id)    # its record and notes from its file

Whoever knows an id may see its run: ids cannot be guessed, and nothing lists them.
"""

import atexit
import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from decoding.common.errors import TraceFileError
from decoding.common.files import user_folder, whole_file
from decoding.trace.records import RunTrace, Setting
from decoding.trace.run_file import load_run, save_run
from pages.ui.common.worker import ModelTask, worker

RUN_ID = re.compile(r"[A-Za-z0-9_-]{22}")
MOST_HELD, HELD_BYTES = 8, 2**28  # runs that nobody may be looking at, and what they may take in memory
NODE_BYTES = 1000  # of a node's record in memory, about
DISK_BYTES = 2**30  # of all files; those not used for longest are deleted first
LOGITS_BYTES = 2**25  # of raw logits in one file; those of the oldest iterations are left out first
QUIET_S = 1.0
ABANDONED_S = 3600.0
SWITCH, OFF = "DRAFTSCOPE_RUNS", "off"
NOT_KEPT = "This run could not be kept on the disk ({}): it is here until the server ends, so save it with File."


class KeptRun(Protocol):
    """What is kept of a `state.Run`, whose file imports this one."""

    trace: RunTrace
    source: Literal["decoded", "opened", "recorded", "forked"]
    id: str
    asked: Any
    origin: str
    on_disk: bool
    unkept: str


@dataclass(frozen=True)
class RunNotes:
    """What a run is besides its record.

    Attributes:
        source, origin: as in `Run`.
        prompt: name, text and whether in the chat template, None where a link cannot decode it again.
        settings: of the method, as requested.
    """

    source: Literal["decoded", "opened", "recorded", "forked"] = "decoded"
    origin: str = ""
    prompt: tuple[str, str, bool] | None = None
    settings: dict[str, Setting] = field(default_factory=dict)


class RunStore:
    """Holds runs by their ids and writes them.

    Args:
        folder: of the files, None to write none.
        hand_over: has a writing function called off the script thread; it gives way to others by what it is passed.
    """

    def __init__(self, folder: Path | None, hand_over: Callable[[Callable[[Callable[[], Any]], None]], Any]) -> None:
        self.folder, self._hand_over = folder, hand_over
        self._lock = threading.Lock()
        self._live: WeakValueDictionary[str, KeptRun] = WeakValueDictionary()
        self._held: dict[str, KeptRun] = {}  # the one used last comes last
        self._due: dict[str, KeptRun] = {}
        self._written: WeakKeyDictionary[KeptRun, RunTrace] = WeakKeyDictionary()
        self._timer: threading.Timer | None = None

    def put(self, run: KeptRun, written: bool = False) -> None:
        """Hold a run, which has just been put on screen; `written`: it has been read from its file."""
        with self._lock:
            self._live[run.id] = run
            if written:
                self._written[run] = run.trace
            self._use(run)
        self.changed(run)

    def find(self, run_id: str) -> KeptRun | None:
        """The run itself, None where no session shows it and it is no longer held."""
        with self._lock:
            run = self._live.get(run_id)
            if run is not None:
                self._use(run)
            return run

    def changed(self, run: KeptRun) -> None:
        """Write a run that is held once nothing has changed for `QUIET_S`."""
        with self._lock:
            if not self._unwritten(run):
                return
            self._due[run.id] = run
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(QUIET_S, self._hand_over, (self.write_due,))
            self._timer.daemon = True
            self._timer.start()

    def write_due(self, give_way: Callable[[], Any] = lambda: None) -> None:
        """Write what has changed."""
        while True:
            with self._lock:
                if not self._due:
                    return
                run = self._due.pop(next(iter(self._due)))
            self._write(run, give_way)

    def flush(self) -> None:
        """Write whatever is not on the disk as it is now: the server ends."""
        for run in list(self._live.values()):
            if self._unwritten(run):
                self._write(run, lambda: None)

    def forget(self, run: KeptRun) -> None:
        """Delete the file of a run that is no longer to be kept; it goes with the last session that shows it."""
        run.on_disk, run.unkept = False, ""
        with self._lock:
            self._held.pop(run.id, None)
            self._due.pop(run.id, None)
            self._written.pop(run, None)
        self._delete(run.id)

    def read(self, run_id: str) -> tuple[RunTrace, RunNotes] | None:
        """Record and notes of a run from its file, None without one.

        Raises `TraceFileError` where the file is damaged.
        """
        if self.folder is None or not RUN_ID.fullmatch(run_id) or not self._file(run_id).is_file():
            return None
        trace, notes = load_run(self._file(run_id)), RunNotes()
        with suppress(OSError, msgspec.DecodeError):  # without its notes the run is still what was decoded
            notes = msgspec.json.decode(self._file(run_id, "json").read_bytes(), type=RunNotes)
        with suppress(OSError):
            os.utime(self._file(run_id))
        return trace, notes

    def _use(self, run: KeptRun) -> None:
        """Hold a run longest of all, within the bounds."""
        if not run.on_disk:
            return
        self._held.pop(run.id, None)
        self._held[run.id] = run
        sizes = {run_id: _num_bytes(held) for run_id, held in self._held.items()}
        while len(sizes) > 1 and (len(sizes) > MOST_HELD or sum(sizes.values()) > HELD_BYTES):
            oldest = next(iter(sizes))
            del sizes[oldest], self._held[oldest]

    def _unwritten(self, run: KeptRun) -> bool:
        wanted = self.folder is not None and run.on_disk and run.trace.iterations
        known = self._live.get(run.id) is run
        return bool(wanted and known and self._written.get(run) is not run.trace)

    def _write(self, run: KeptRun, give_way: Callable[[], Any]) -> None:
        """Write a run's file; where the disk refuses, the run says so and nothing else changes."""
        trace, asked = run.trace, run.asked
        notes = RunNotes(run.source, run.origin)
        if asked is not None:
            prompt = (asked.prompt.name, asked.prompt.text, asked.prompt.chat)
            notes = replace(notes, prompt=prompt, settings=asked.method.settings())
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with whole_file(self._file(run.id)) as stream:
                save_run(_with_latest_logits(trace), _GivesWay(stream, give_way))
            with whole_file(self._file(run.id, "json")) as stream:
                stream.write(msgspec.json.encode(notes))
        except OSError as error:
            run.unkept = NOT_KEPT.format(error.strerror or error)
        except TraceFileError as error:
            run.unkept = str(error)
        else:
            run.unkept, self._written[run] = "", trace
            self._drop_oldest()
        if not run.on_disk:  # forgotten meanwhile
            self._delete(run.id)

    def _drop_oldest(self) -> None:
        """Delete the files that have not been used for longest until all fit, and what a killed server left behind."""
        found = []
        for file in self.folder.iterdir():
            with suppress(FileNotFoundError):  # another server has deleted it
                found.append((file.stat().st_mtime, file.stat().st_size, file))
        total = sum(size for _, size, _ in found)
        for used_s, size, file in sorted(found, key=lambda each: each[:2])[:-1]:
            if file.suffix == ".part" and time.time() - used_s > ABANDONED_S:
                file.unlink(missing_ok=True)
            elif file.suffix == ".dscope" and total > DISK_BYTES:
                self._delete(file.stem)
                total -= size

    def _delete(self, run_id: str) -> None:
        if self.folder is not None:
            for kind in ("dscope", "json"):
                with suppress(OSError):
                    self._file(run_id, kind).unlink(missing_ok=True)

    def _file(self, run_id: str, kind: str = "dscope") -> Path:
        return self.folder / f"{run_id}.{kind}"


class _GivesWay:
    """A stream that lets others have their turn before each piece."""

    def __init__(self, stream: Any, give_way: Callable[[], Any]) -> None:
        self._stream, self._give_way = stream, give_way

    def write(self, piece: bytes) -> int:
        self._give_way()
        return self._stream.write(piece)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _with_latest_logits(trace: RunTrace) -> RunTrace:
    """The same run with at most `LOGITS_BYTES` of raw logits."""
    room, iterations = LOGITS_BYTES, []
    for each in reversed(trace.iterations):
        room -= each.logits_bytes
        iterations.append(each if room >= 0 else replace(each, draft_logits=None, target_logits=None))
    return replace(trace, iterations=tuple(reversed(iterations)))


def _num_bytes(run: KeptRun) -> int:
    """What a run and its forks take in memory, about: records, raw logits and KV slots."""
    runs = [run, *(branch.run for branch in run.branches.values() if branch.run is not run)]
    iterations = {id(each): each for one in runs for each in one.trace.iterations}.values()  # forks share the first
    num_bytes = sum(each.logits_bytes + NODE_BYTES * len(each.nodes) for each in iterations)
    for last in (one.trace.iterations[-1] for one in runs if one.session is not None and one.trace.iterations):
        caches = filter(None, (last.kv_target, last.kv_draft))
        num_bytes += sum((each.slots_before + each.slots_written) * each.bytes_per_slot for each in caches)
    return num_bytes


def switched_off() -> bool:
    """Whether no run of this server is to be written."""
    return os.environ.get(SWITCH, "").lower() == OFF


@cache
def store() -> RunStore:
    """The store of this server. It writes as a job: between the turns of others, so that none is measured meanwhile."""
    folder = None if switched_off() else Path(os.environ.get(SWITCH) or user_folder("runs"))
    made = RunStore(folder, lambda write: worker().submit(ModelTask("Keeping a run", lambda job: write(job.go_on))))
    atexit.register(made.flush)
    return made
