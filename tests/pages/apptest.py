"""What the page tests share: open a page of the app, wait for its job."""

from pathlib import Path

from streamlit.testing.v1 import AppTest

ROOT = Path(__file__).resolve().parents[2]


def open_page(page: str | None = None) -> AppTest:
    """The app on a page such as `pages/step_through.py` (None: Home), drawn once."""
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    if page is not None:
        at.switch_page(page)
    return at.run()


def finish(at: AppTest, slot: str) -> AppTest:
    """Wait until a slot's job has ended and draw the page again; fragments never poll in these tests."""
    assert at.session_state[f"job_{slot}"].wait(60), "the job does not end"
    return at.run()


def sentences(at: AppTest) -> list[str]:
    """The errors on screen, without the escapes that keep Markdown quiet."""
    assert not at.exception, at.exception[0].message
    return [element.value.replace("\\", "") for element in at.error]
