"""No page test passes over a defect: what a page or a job did not catch fails the test that ran it."""

import logging
from collections.abc import Iterator

import pytest

from pages.ui.common import errors


class Failures(logging.Handler):
    """Keeps what the app's own log says of failed jobs."""

    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.ERROR)
        self.said = said

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(self.format(record))


@pytest.fixture(autouse=True)
def uncaught(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Defects of pages and jobs so far; a test that brings one about on purpose empties the list."""
    said: list[str] = []
    draw, handler, logger = errors._draw_uncaught, Failures(said), logging.getLogger("draftscope")
    monkeypatch.setattr(errors, "_draw_uncaught", lambda error: (said.append(repr(error)), draw(error)))
    logger.addHandler(handler)
    errors.word_uncaught_errors()  # a view may be drawn without the page around it
    yield said
    logger.removeHandler(handler)
    assert not said, "\n".join(said)
