"""Download buttons whose files still exist when the browser requests them.

Streamlit's server deletes files that no page shows. A file made on demand belongs to no page, and while a page is
redrawn none of its files do: they are deleted when a script of another session ends meanwhile. So these buttons hold
their files: a shown file until two others have replaced it or the page was drawn twice without it, a file made on
demand for `HOLD_S`.
"""

import threading
import uuid
from collections.abc import Callable

import streamlit as st
from streamlit.runtime import Runtime

from pages.ui.common.worker import holder, this_session

HOLD_S = 60.0
NO_SESSION = "dontcare"  # Streamlit's owner of files that no script has added
UNDRAWN = "downloads_undrawn"  # by the key of a button: page draws since it was last drawn


def download_button(
    label: str,
    data: str | bytes | Callable[[], str | bytes],
    file_name: str,
    mime: str,
    key: str,
    icon: str | None = ":material/download:",
    **looks,
) -> None:
    """`st.download_button` without rerunning the page.

    Args:
        data: the file, or a function that makes it on each click, in a thread without a session.
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
    """Release files that two draws in a row had no button for: their functions may hold a run that is gone."""
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
    """Release the files held under a name."""
    manager = Runtime.instance().media_file_mgr
    manager.clear_session_refs(name)
    manager.remove_orphaned_files()  # marks them
    manager.remove_orphaned_files()


def _files(session: str) -> dict[str, str]:
    """Files by their places on the server; none without a server."""
    if not Runtime.exists():
        return {}
    manager = Runtime.instance().media_file_mgr
    with manager._lock:
        return dict(manager._files_by_session_and_coord.get(session, {}))


def _held(make: Callable[[], str | bytes], file_name: str, mime: str) -> Callable[[], str | bytes]:
    """The same function, with its file held before the browser gets the address."""

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
