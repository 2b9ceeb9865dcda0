"""How the page Sweep looks beyond what all pages share."""

STYLE = """
<style>
[class*=st-key-sweep_entry_] { margin-bottom: 0.15rem; }
[class*=st-key-sweep_entry_] button { justify-content: flex-start; text-align: left; min-height: 2.2rem; }
[class*=st-key-sweep_entry_] button > div { justify-content: flex-start; width: 100%; }
[class*=st-key-sweep_entry_] button p { font-size: 0.88rem; line-height: 1.25; text-align: left; }
[class*=st-key-sweep_entry_] [data-testid=stCaptionContainer] p { font-size: 0.78rem; padding: 0 0 0.2rem 0.8rem; }
.st-key-sweep_header { min-height: 2.4rem; flex-wrap: nowrap; }
.st-key-sweep_header button p { white-space: nowrap; }
.st-key-sweep_title { min-width: 0; }
.st-key-sweep_header p { margin: 0; }
.st-key-sweep_header button { min-height: 2.1rem; height: 2.1rem; padding: 0 0.75rem; }
.st-key-sweep_title p { font-size: 1.05rem; }
.st-key-sweep_header [data-testid=stMarkdownContainer], .st-key-sweep_title [data-testid=stMarkdownContainer] {
  margin: 0;
}
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
