"""Download buttons whose files are there when the browser asks for them.

Streamlit's server deletes what no page shows. A file that is made on demand belongs to no page, and none of a page's
files do while it is drawn anew: scripts of other sessions that end meanwhile take them away. So the files of these
buttons are held: what a page shows until it has drawn two others in its place or was drawn twice without it, what was
made for `HOLD_S`.
"""

import threading
import uuid
from collections.abc import Callable

import streamlit as st
from streamlit.runtime import Runtime

from pages.ui.common.worker import holder, this_session

HOLD_S = 60.0
NO_SESSION = "dontcare"  # whose files are, for Streamlit, those that no script has added
UNDRAWN = "downloads_undrawn"  # by the key of a button: how many pages have begun since it was drawn


def download_button(
    label: str,
    data: str | bytes | Callable[[], str | bytes],
    file_name: str,
    mime: str,
    key: str,
    icon: str | None = ":material/download:",
    **looks,
) -> None:
    """`st.download_button` without a run of the page.

    Args:
        data: the file, or what makes it on each click, in a thread without a session.
        looks: as for `st.download_button`.
    """
    session = this_session()
    st.session_state.setdefault(UNDRAWN, {})[key] = 0
    if callable(data):
        data = _held(data, file_name, mime)
    before = _files(session)
    st.download_button(label, data, file_name=file_name, mime=mime, key=key, on_click="ignore", icon=icon, **looks)
    for file in (file for place, file in _files(session).items() if before.get(place) != file):
        manager = Runtime.instance().media_file_mgr
        with manager._lock:
            held = manager._files_by_session_and_coord[holder(session)]
            if key in held:
                held[f"{key} before"] = held[key]
            held[key] = file


def page_begins() -> None:
    """Let go of files that two draws in a row had no button for: what makes one may hold a run that is gone."""
    undrawn = st.session_state.setdefault(UNDRAWN, {})
    for key in list(undrawn):
        undrawn[key] += 1
        if undrawn[key] > 2:
            del undrawn[key]
            if Runtime.exists():
                manager = Runtime.instance().media_file_mgr
                with manager._lock:
                    held = manager._files_by_session_and_coord.get(holder(this_session()), {})
                    held.pop(key, None)
                    held.pop(f"{key} before", None)


def let_go(name: str) -> None:
    """Hold nothing more in a name."""
    manager = Runtime.instance().media_file_mgr
    manager.clear_session_refs(name)
    manager.remove_orphaned_files()  # marks them
    manager.remove_orphaned_files()


def _files(session: str) -> dict[str, str]:
    """Files by their places, as the server has them; none without one."""
    if not Runtime.exists():
        return {}
    manager = Runtime.instance().media_file_mgr
    with manager._lock:
        return dict(manager._files_by_session_and_coord.get(session, {}))


def _held(make: Callable[[], str | bytes], file_name: str, mime: str) -> Callable[[], str | bytes]:
    """The same, with its file held from before the browser is told the address."""

    def made() -> str | bytes:
        data = make()
        if not Runtime.exists():
            return data
        name = uuid.uuid4().hex
        manager = Runtime.instance().media_file_mgr
        content = data.encode() if isinstance(data, str) else data
        manager.add(content, mime, name, file_name=file_name, is_for_static_download=True)
        with manager._lock:
            places = manager._files_by_session_and_coord
            places[name][name] = places[NO_SESSION].pop(name)
        timer = threading.Timer(HOLD_S, let_go, (name,))
        timer.daemon = True
        timer.start()
        return data

    return made
