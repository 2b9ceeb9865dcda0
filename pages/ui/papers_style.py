"""How the page Papers looks beyond what all pages share."""

STYLE = """
<style>
.st-key-papers_list { max-height: calc(100vh - 4.2rem); overflow-y: auto; flex-wrap: nowrap; padding-right: 0.3rem; }
[data-testid=stColumn]:has(.st-key-papers_list) { position: sticky; top: 0.6rem; align-self: flex-start; }
.st-key-papers_list > * { flex: none; }
.st-key-papers_list [data-testid=stMarkdownContainer], .st-key-papers_list [data-testid=stCaptionContainer],
.st-key-papers_header [data-testid=stMarkdownContainer], .st-key-papers_header [data-testid=stCaptionContainer],
.st-key-papers_offer [data-testid=stCaptionContainer] { margin: 0; }
.st-key-papers_list [data-testid=stCaptionContainer] p { font-size: 0.78rem; line-height: 1.4; margin: 0.2rem 0; }
.st-key-papers_list [data-testid=stExpanderDetails] { padding: 0.2rem 0.3rem 0.4rem; }
.st-key-papers_list [data-testid=stExpanderDetails] [data-testid=stVerticalBlock] { gap: 0; }
.st-key-papers_list summary { padding: 0.35rem 0.6rem; min-height: 0; }
.st-key-papers_list summary p { font-size: 0.88rem; line-height: 1.3; }
[class*=st-key-papers_entry_] button { justify-content: flex-start; text-align: left; min-height: 1.8rem; }
[class*=st-key-papers_entry_] button { padding: 0.15rem 0.5rem; }
[class*=st-key-papers_entry_] button > div { justify-content: flex-start; width: 100%; }
[class*=st-key-papers_entry_] button p { font-size: 0.84rem; line-height: 1.2; text-align: left; }
.st-key-papers_header p { margin: 0; }
.st-key-papers_header [data-testid=stMarkdown] p { font-size: 1.08rem; }
.st-key-papers_header [data-testid=stCaptionContainer] p { font-size: 0.84rem; line-height: 1.45; }
.st-key-papers_offer, .st-key-papers_progress { min-height: 2.6rem; flex-wrap: nowrap; }
.st-key-papers_offer button, .st-key-papers_progress button { min-height: 2.1rem; height: 2.1rem; }
.st-key-papers_offer button p, .st-key-papers_progress button p { white-space: nowrap; }
.st-key-papers_offer [data-testid=stCaptionContainer] p { margin: 0; }
.st-key-papers_chart { padding: 0.4rem 0.8rem 0.3rem !important; }
.papers-table-box { overflow-x: auto; }
.papers-table { --line: 1px solid color-mix(in srgb, currentColor 18%, transparent); border-collapse: collapse; }
.papers-table { min-width: 50%; font-size: 0.8rem; font-variant-numeric: tabular-nums; }
.papers-table th, .papers-table td { border: 0; border-bottom: var(--line); padding: 0.2rem 0.4rem; text-align: end; }
.papers-table thead th { vertical-align: bottom; font-weight: 600; }
.papers-table thead th[scope=colgroup] { border-bottom: 0; }
.papers-table thead th[colspan="2"] { text-align: center; }
.papers-table thead td { border-bottom: var(--line); }
.papers-table tbody th { font-weight: 400; text-align: left; vertical-align: top; white-space: nowrap; }
.papers-table tbody td { white-space: nowrap; }
.papers-table .paper { opacity: 0.85; font-style: italic; }
ul.papers-claims { list-style: none; margin: 0 !important; padding: 0 !important; font-size: 0.9rem; }
ul.papers-claims li {
  display: grid; grid-template-columns: 8.4rem 1fr; gap: 0.8rem; padding: 0.15rem 0 0.15rem 0.7rem;
  margin: 0 0 0.45rem !important; border-left: 4px dotted #8A93A6;
}
ul.papers-claims li.holds { border-left: 4px solid #009E73; }
ul.papers-claims li.does-not-hold { border-left: 4px dashed #D55E00; }
ul.papers-claims li.mixed { border-left: 4px double #8A93A6; }
ul.papers-claims .place { display: grid; grid-template-columns: 7rem 8.4rem 1fr; gap: 0.8rem; padding: 0.1rem 0; }
ul.papers-claims .place { border-top: 1px solid color-mix(in srgb, currentColor 18%, transparent); }
ul.papers-claims .verdict { white-space: nowrap; font-weight: 600; }
ul.papers-claims .told { font-variant-numeric: tabular-nums; }
ul.papers-claims .why { font-size: 0.86rem; opacity: 0.85; }
</style>
"""
