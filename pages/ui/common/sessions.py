"""Browser sessions as Streamlit's server knows them: which are there, and which belong to one browser."""

import ctypes
import gc
import sys
import threading
from collections.abc import Callable

import streamlit as st
from streamlit.runtime import Runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.web.server.starlette.starlette_app_utils import decode_xsrf_token_string
from streamlit.web.server.starlette.starlette_server_config import XSRF_COOKIE_NAME


def this_session() -> str:
    """Id of the session whose script runs here, empty where none does."""
    context = get_script_run_ctx()
    return "" if context is None else context.session_id


def is_connected(session_id: str) -> bool:
    """Whether a browser shows the session; a tab that is closed or reloaded leaves its session without one."""
    return not session_id or not Runtime.exists() or Runtime.instance().is_active_session(session_id)


def this_browser() -> str:
    """What all sessions of this browser have in common, empty where that is not known.

    It is the token that the server has given the browser against forged requests; each cookie masks it anew.
    """
    token, _ = decode_xsrf_token_string(st.context.cookies.get(XSRF_COOKIE_NAME, ""))
    return "" if token is None else token.hex()


def holder(session_id: str) -> str:
    """In whose name the files of a session's download buttons are held."""
    return f"{session_id} downloads"


def forget(session_id: str, afterwards: Callable[[], None]) -> None:
    """End a session that will not come back, with all it holds in memory; the server would do so when others come.

    Args:
        afterwards: called in a thread of its own, once nothing holds what the session held.
    """
    runtime = Runtime.instance()
    runtime.media_file_mgr.clear_session_refs(holder(session_id))

    def close() -> None:
        if not runtime.is_active_session(session_id):
            runtime.close_session(session_id)
            threading.Timer(1.0, afterwards).start()

    runtime._get_async_objs().eventloop.call_soon_threadsafe(close)


def free_memory() -> None:
    """Give memory that nothing holds back to the system: the C library keeps what was freed in small pieces."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
        if trim is not None:
            trim(0)
