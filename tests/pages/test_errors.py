"""What nothing caught is one sentence in a page, a fragment and a callback; never Streamlit's box with its links."""

import pytest
from streamlit.testing.v1 import AppTest

from decoding.common.errors import PromptError
from pages.ui.common.errors import OUT_OF_MEMORY, UNEXPECTED


def page() -> None:
    import streamlit as st

    from pages.ui.common.errors import word_uncaught_errors

    word_uncaught_errors()

    def fail() -> None:
        raise st.session_state["error"]

    @st.fragment
    def part() -> None:
        if st.session_state.get("place") == "fragment":
            fail()

    st.button("Fail", key="fail", on_click=fail)
    part()
    part()
    if st.session_state.get("place") == "page":
        fail()
    st.text("drawn to its end")


@pytest.mark.parametrize("place", ["page", "fragment", "callback"])
def test_an_uncaught_error_is_a_sentence_and_the_page_can_be_drawn_again(place: str, uncaught: list[str]):
    at = AppTest.from_function(page, default_timeout=30)
    at.session_state["error"], at.session_state["place"] = KeyError("what_if_method"), place
    at.run()
    if place == "callback":
        at.button(key="fail").click().run()
    assert not at.exception and {error.value for error in at.error} == {UNEXPECTED.format(kind="KeyError")}
    assert "what_if_method" in uncaught[0], "the log tells the details"
    uncaught.clear()
    at.session_state["place"] = ""
    next(button for button in at.button if button.label == "Redraw the page").click().run()
    assert not at.error and at.text[0].value == "drawn to its end"


@pytest.mark.parametrize(
    ("error", "said"),
    [(MemoryError(), OUT_OF_MEMORY), (PromptError("It is empty."), "It is empty.")],
)
def test_errors_that_have_words_keep_them(error: Exception, said: str, uncaught: list[str]):
    at = AppTest.from_function(page, default_timeout=30)
    at.session_state["error"], at.session_state["place"] = error, "page"
    at.run()
    assert [each.value.replace("\\", "") for each in at.error] == [said]
    uncaught.clear()
