"""Files of download buttons are there when the browser asks, whatever other sessions draw meanwhile."""

import pytest
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.media_file_storage import MediaFileStorageError
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage

from pages.ui.common import downloads
from pages.ui.common.worker import holder


@pytest.fixture
def server(monkeypatch):
    """Streamlit's own keeper of files, for scripts of session `a`."""
    manager = MediaFileManager(MemoryMediaFileStorage("/media"))
    runtime = type("Runtime", (), {"media_file_mgr": manager})
    monkeypatch.setattr(downloads, "Runtime", type("Has", (), {"exists": lambda: True, "instance": lambda: runtime}))
    monkeypatch.setattr(downloads, "this_session", lambda: "a")
    monkeypatch.setattr(downloads.st, "session_state", {})

    def button(label, data, *, file_name, mime, key, **looks):
        session = "streamlit.runtime.media_file_manager._get_session_id"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session, lambda: "a")
            if callable(data):
                manager.shown = manager.add_deferred(data, mime, "place", file_name)
            else:
                manager.shown = manager.add(data.encode(), mime, "place", file_name, is_for_static_download=True)

    monkeypatch.setattr(downloads.st, "download_button", button)
    manager.due = []
    clock = lambda *what: manager.due.append(what) or type("Timer", (), {"start": lambda self: None})()  # noqa: E731
    monkeypatch.setattr(downloads.threading, "Timer", clock)
    return manager


def others_draw(manager, times: int = 4) -> None:
    """Scripts of other sessions end, one after the other, while this one's page is drawn anew."""
    manager.clear_session_refs("a")
    for _ in range(times):
        manager.remove_orphaned_files()


def there(manager, url: str) -> bool:
    return manager.read_file(url.rsplit("/", 1)[-1].split(".")[0]) is not None


def test_a_file_made_on_demand_stays_until_it_is_fetched(server):
    downloads.download_button("Run", lambda: "text of the run", "run.txt", "text/plain", "save")
    url = server.execute_deferred(server.shown)
    others_draw(server)
    assert there(server, url)
    assert server.execute_deferred(server.shown) == url, "it can be asked for again"


def test_what_the_browser_still_shows_stays(server):
    for draw in range(2):
        downloads.download_button("CSV", f"a,b\n{draw},2\n", "table.csv", "text/csv", "csv")
        if not draw:
            before = server.shown
    others_draw(server)
    assert there(server, before) and there(server, server.shown)
    downloads.download_button("CSV", "a,b\n3,3\n", "table.csv", "text/csv", "csv")
    others_draw(server)
    assert not there(server, before), "what no browser shows any more is let go"


def test_two_buttons_do_not_take_each_others_place(server):
    found = []
    for key in ("first", "second"):
        server.clear_session_refs("a")
        downloads.download_button("CSV", key, f"{key}.csv", "text/csv", key)
        found.append(server.shown)
    others_draw(server)
    assert all(there(server, url) for url in found)


def test_a_file_goes_once_its_button_is_not_drawn_any_more(server):
    """A page that is drawn anew but not to its end still shows the button; one that is left does not."""

    def draw(*keys: str) -> None:
        downloads.page_begins()
        server.clear_session_refs("a")
        for key in keys:
            downloads.download_button("Run", lambda: "text of the run", "run.txt", "text/plain", key)
        others_draw(server)

    draw("save", "other")
    shown = server.shown
    draw("save")
    assert server.execute_deferred(shown)
    draw("save")
    assert len(server._deferred_callables) == 3
    draw("save")
    with pytest.raises(MediaFileStorageError):
        server.execute_deferred(shown)
    assert len(server._deferred_callables) == 2, "what is drawn is held, with the one before"


def test_what_was_made_is_let_go_after_its_time(server):
    downloads.download_button("Run", lambda: b"bytes", "run.bin", "application/octet-stream", "save")
    url = server.execute_deferred(server.shown)
    ((seconds, let_go, arguments),) = server.due
    assert seconds == downloads.HOLD_S
    let_go(*arguments)
    assert not there(server, url)


def test_a_session_that_is_forgotten_holds_nothing(server):
    downloads.download_button("Run", lambda: "text", "run.txt", "text/plain", "save")
    server.clear_session_refs(holder("a"))
    others_draw(server)
    with pytest.raises(MediaFileStorageError):
        server.execute_deferred(server.shown)
