"""Draftscope: the home page. What tree speculative decoding is, around one real recorded iteration.

It draws before torch is loaded: nothing imported here may import it.
"""

from pages.ui.app.home import draw_introduction, draw_iteration, draw_next
from pages.ui.app.setup import setup


def main() -> None:
    """Introduction, the iteration step by step, where to go."""
    setup("Home")
    draw_introduction()
    draw_iteration()
    draw_next()


main()
