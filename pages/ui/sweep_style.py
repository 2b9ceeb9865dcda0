"""How the page Sweep looks beyond what all pages share."""

from pages.ui.watching import list_style

STYLE = (
    f"<style>{list_style('sweep')}"
    + """
[class*=st-key-sweep_part_] { padding: 0.5rem 0.8rem 0.7rem !important; gap: 0.4rem !important; }
.st-key-sweep_asked [data-testid=stCaptionContainer] p { font-size: 0.82rem; margin: 0 0 0.4rem; }
/* A chart that is drawn anew stands there twice for a frame: nothing below it may move. */
.st-key-sweep_chart_panel { overflow: hidden; padding: 0.5rem 0.8rem 0.3rem !important; }
/* White words on the dark theme's primary colour would be hard to read. */
[class*=st-key-sweep_part_] [data-baseweb=tag], [class*=st-key-sweep_part_] [data-testid=stMultiSelect] [data-tag] {
  background-color: #00795A !important;
}
.st-key-sweep_go p { margin: 0; }
/* Plotly draws parallel axes in black with a white shadow behind their ticks, in the dark theme as well. */
.st-key-sweep_chart_panel .parcoords text { text-shadow: none !important; }
.st-key-sweep_chart_panel .parcoords .axis path, .st-key-sweep_chart_panel .parcoords .axis line {
  stroke: #8A93A6 !important; stroke-opacity: 0.8 !important;
}
.st-key-sweep_best_words p { font-size: 1rem; margin: 0; }
.st-key-sweep_best_words [data-testid=stMarkdownContainer] { margin-bottom: 0; }
.st-key-sweep_part_picked [data-testid=stMarkdownContainer], .st-key-sweep_go [data-testid=stMarkdownContainer] {
  margin-bottom: 0;
}
</style>
"""
)
