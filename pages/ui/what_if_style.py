"""The style sheet of What if. A is the blue of the charts, B their orange, as in the drawn history."""

# Streamlit knows no heights but pixels: history and trees fill the window, within reason.
STYLE = """
<style>
.st-key-toolbar [data-testid=stNumberInput] input { padding: 0.2rem 0.5rem; }
.st-key-toolbar [data-testid=stNumberInputContainer] { min-height: 2.1rem; height: 2.1rem; }
.st-key-toolbar p { white-space: nowrap; }
.st-key-what_if_pending, .st-key-what_if_again_area { min-height: 1.6rem; flex-wrap: nowrap; }
.st-key-what_if_again_area p { font-size: 0.92rem; }
.st-key-what_if_pending p { font-size: 0.9rem; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.st-key-what_if_pending button { min-height: 1.4rem; height: 1.4rem; }
.st-key-what_if_pending [data-testid=stButton] { display: flex; }
.st-key-what_if_again_area button { min-height: 2.1rem; height: 2.1rem; }
.st-key-what_if_graph, .st-key-what_if_history [class*=stBidiComponent] {
  flex: none !important; height: clamp(390px, calc(100vh - 14.6rem), 1000px) !important;
}
.st-key-what_if_history { gap: 0.3rem; }
.st-key-what_if_history p { font-size: 0.84rem; line-height: 1.3; }
.st-key-what_if_trees [class*=st-key-what_if_tree_], .st-key-what_if_trees [class*=stBidiComponent] {
  flex: none !important; height: clamp(250px, calc(100vh - 31.8rem), 640px) !important;
}
[class*=st-key-what_if_head_] { flex-wrap: nowrap; min-height: 2rem; }
[class*=st-key-what_if_head_] button { min-height: 1.9rem; height: 1.9rem; padding: 0 0.5rem; }
[class*=st-key-what_if_head_] button p { font-size: 0.85rem; white-space: nowrap; }
[class*=st-key-what_if_head_] [role=group] { min-height: 1.9rem; height: 1.9rem; }
[class*=st-key-what_if_head_] input { text-overflow: ellipsis; }
.st-key-what_if_trees [data-testid=stVerticalBlock] { gap: 0.35rem; }
.fork-name {
  display: inline-block; flex: none; width: 1.35rem; height: 1.35rem; line-height: 1.35rem; border-radius: 0.7rem;
  text-align: center; font-weight: 700; font-size: 0.82rem;
}
.fork-a { background: #0072B2; color: #FFFFFF; }
.fork-b { background: #BD8200; color: #1A1F2B; }
.fork-why {
  font-size: 0.82rem; line-height: 1.3rem; min-height: 1.3rem;
  white-space: nowrap; overflow: hidden; text-overflow: ellipsis;
}
[data-testid=stLayoutWrapper]:has(> .st-key-what_if_empty) {
  height: clamp(250px, calc(100vh - 31.8rem), 640px) !important;
}
.st-key-what_if_empty {
  border: 1px dashed color-mix(in srgb, currentColor 30%, transparent); border-radius: 8px; padding: 1rem 1.5rem;
  height: 100% !important; justify-content: center; align-items: center; gap: 0.6rem;
}
.st-key-what_if_empty p { text-align: center; }
.st-key-what_if_empty button { width: 22rem; }
.fork-guide { display: grid; grid-template-columns: repeat(3, 1fr); gap: 1.5rem; padding-top: 0.4rem; }
.fork-guide p { margin: 0.15rem 0 0; font-size: 0.92rem; line-height: 1.45; max-width: 26rem; }
.fork-guide b { font-size: 1.02rem; }
.fork-summary { font-size: 1.05rem; font-weight: 600; }
.fork-summary small { font-weight: 400; font-size: 0.9rem; }
.fork-bias { font-size: 0.88rem; padding: 0.1rem 0.6rem; border-left: 3px solid #D55E00; margin: 0.15rem 0; }
.fork-table { width: 100%; border-collapse: collapse; font-size: 0.86rem; margin: 0.2rem 0; }
.fork-table th, .fork-table td {
  text-align: left; padding: 0.1rem 0.7rem 0.1rem 0; font-weight: 400;
  border-bottom: 1px solid color-mix(in srgb, currentColor 16%, transparent);
  vertical-align: bottom;
}
.fork-table thead th { font-weight: 600; line-height: 1.15; }
.fork-table small { display: block; font-weight: 400; font-size: 0.74rem; opacity: 0.75; }
.fork-line { display: flex; gap: 0.5rem; align-items: baseline; font-size: 0.84rem; margin-top: 0.2rem; }
.fork-text { font-family: "Source Code Pro", "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; line-height: 1.5; }
.fork-text .said { opacity: 0.65; }
.fork-text b { font-weight: 400; white-space: pre-wrap; }
.fork-text .parted b { font-weight: 700; }
</style>
"""
