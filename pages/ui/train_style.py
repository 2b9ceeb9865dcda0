"""How the page Train looks beyond what all pages share."""

STYLE = """
<style>
[class*=st-key-train_entry_] { margin-bottom: 0.15rem; }
[class*=st-key-train_entry_] button { justify-content: flex-start; text-align: left; min-height: 2.2rem; }
[class*=st-key-train_entry_] button > div { justify-content: flex-start; width: 100%; }
[class*=st-key-train_entry_] button p { font-size: 0.88rem; line-height: 1.25; text-align: left; }
[class*=st-key-train_entry_] [data-testid=stCaptionContainer] p { font-size: 0.78rem; padding: 0 0 0.2rem 0.8rem; }
.st-key-train_header { min-height: 2.4rem; flex-wrap: nowrap; }
.st-key-train_header button p { white-space: nowrap; }
.st-key-train_title { min-width: 0; }
.st-key-train_header p { margin: 0; }
.st-key-train_header button { min-height: 2.1rem; height: 2.1rem; padding: 0 0.75rem; }
.st-key-train_title p { font-size: 1.05rem; }
.st-key-train_header [data-testid=stMarkdownContainer], .st-key-train_title [data-testid=stMarkdownContainer] {
  margin: 0;
}
/* A chart that is drawn anew stands there twice for a frame: nothing below it may move. */
[class*=st-key-train_panel_] { overflow: hidden; height: 17.2rem; padding: 0.5rem 0.8rem 0.3rem !important; }
[class*=st-key-train_panel_] p { margin: 0; font-size: 0.92rem; }
.st-key-train_trees [data-testid=stCaptionContainer] p { font-size: 0.8rem; margin: 0; }
.st-key-train_trees [data-testid=stSlider] { margin-top: -0.3rem; }
.st-key-train_trees [data-testid=stSliderTickBar] { display: none; }
</style>
"""
