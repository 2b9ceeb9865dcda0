"""How the page Train looks beyond what all pages share."""

from pages.ui.watching import list_style

STYLE = (
    f"<style>{list_style('train')}"
    + """
/* A chart that is drawn anew stands there twice for a frame: nothing below it may move. */
[class*=st-key-train_panel_] { overflow: hidden; height: 17.2rem; padding: 0.5rem 0.8rem 0.3rem !important; }
[class*=st-key-train_panel_] p { margin: 0; font-size: 0.92rem; }
.st-key-train_trees [data-testid=stCaptionContainer] p { font-size: 0.8rem; margin: 0; }
.st-key-train_trees [data-testid=stSlider] { margin-top: -0.3rem; }
.st-key-train_trees [data-testid=stSliderTickBar] { display: none; }
</style>
"""
)
