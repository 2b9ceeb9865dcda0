"""Pages that watch processes at work: a list of them on the left, the one that is looked at on the right.

Both are drawn by the clock. The browser loses the page where the clock of one fragment strikes while another has asked
for the whole ("Cannot set a node at a delta path"): where the view has a clock of its own, the list never asks.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import streamlit as st

from decoding.common.errors import DraftscopeError
from pages.ui.common.errors import escape_markdown, show_error
from pages.ui.common.sentences import on_page

LIST_S, VIEW_S = 3.0, 2.0  # between two looks at all of them, and at the one that is looked at while it is at work


class Stand(Protocol):
    """Where a process stands: its state and what it says of that."""

    state: str
    message: str

    @property
    def running(self) -> bool: ...


class Watched(Protocol):
    """What is followed: `look` sees where it stands now."""

    stand: Any

    def look(self) -> Any: ...


def watch(
    name: str,
    look: Callable[[], Sequence[Watched]],
    looked_at: Callable[[Sequence[Watched]], Watched | None],
    is_live: Callable[[], bool],
    draw_list: Callable[[Sequence[Watched]], None],
    draw_form: Callable[[Sequence[Watched]], None],
    draw_one: Callable[[Watched], None],
) -> None:
    """Draw list and view; where nothing is looked at, the form that starts another.

    Args:
        name: of the page, in its widgets' keys. look: all that is followed, as it stands now.
        looked_at: which of them; None for the form. is_live: whether the view follows what is at work.
    """

    def keep_list(seen: Watched | None, at_work: bool, clocked: bool) -> None:
        """The list; the whole page where what is looked at has begun or ended and its view has no clock to see it."""
        found = look()
        if seen is not None and not clocked and seen.stand.running != at_work:
            st.rerun(scope="app")
        draw_list(found)

    def keep_view(seen: Watched, at_work: bool, live: bool) -> None:
        """The one that is looked at; the whole page where a person began it or stilled its view."""
        seen.look()
        if (seen.stand.running and not at_work) or is_live() != live:
            st.rerun(scope="app")
        draw_one(seen)

    found = look()
    seen, live = looked_at(found), is_live()
    at_work = seen is not None and seen.stand.running
    left, right = st.columns([1, 3.8], gap="medium")
    with left.container(key=f"{name}_list"):
        st.fragment(keep_list, run_every=LIST_S)(seen, at_work, at_work and live)
    with right:
        if seen is None:
            draw_form(found)
        else:
            st.fragment(keep_view, run_every=VIEW_S if at_work and live else None)(seen, at_work, live)


def attempt(error_key: str, act: Callable, *arguments) -> None:
    """Do what a button asks; what stands against it is kept for `show_attempt`."""
    try:
        act(*arguments)
    except DraftscopeError as error:
        st.session_state[error_key] = error


def show_attempt(error_key: str) -> None:
    """What stood against a button."""
    if error := st.session_state.pop(error_key, None):
        show_error(error)


def draw_end(stand: Stand) -> None:
    """Why a process failed or stopped."""
    message = escape_markdown(on_page(stand.message))
    if stand.state == "failed":
        st.error(message, icon=":material/error:")
    elif stand.state == "stopped" and message:
        st.info(message, icon=":material/pause_circle:")


def list_style(name: str) -> str:
    """How list and header of such a page look, the name in its widgets' keys."""
    return f"""
[class*=st-key-{name}_entry_] {{ margin-bottom: 0.15rem; }}
[class*=st-key-{name}_entry_] button {{ justify-content: flex-start; text-align: left; min-height: 2.2rem; }}
[class*=st-key-{name}_entry_] button > div {{ justify-content: flex-start; width: 100%; }}
[class*=st-key-{name}_entry_] button p {{ font-size: 0.88rem; line-height: 1.25; text-align: left; }}
[class*=st-key-{name}_entry_] [data-testid=stCaptionContainer] p {{ font-size: 0.78rem; padding: 0.25rem 0 0 0.8rem; }}
[class*=st-key-{name}_entry_] [data-testid=stCaptionContainer] {{ margin-bottom: -1.6rem; }}
.st-key-{name}_header {{ min-height: 2.4rem; flex-wrap: nowrap; }}
.st-key-{name}_header button p {{ white-space: nowrap; }}
.st-key-{name}_title {{ min-width: 0; }}
.st-key-{name}_header p {{ margin: 0; }}
.st-key-{name}_header button {{ min-height: 2.1rem; height: 2.1rem; padding: 0 0.75rem; }}
.st-key-{name}_title p {{ font-size: 1.05rem; }}
.st-key-{name}_header [data-testid=stMarkdownContainer], .st-key-{name}_title [data-testid=stMarkdownContainer] {{
  margin: 0;
}}
"""
