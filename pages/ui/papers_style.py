"""How the page Papers looks beyond what all pages share."""

STYLE = """
<style>
[class*=st-key-papers_entry_] button { justify-content: flex-start; text-align: left; min-height: 2rem; }
[class*=st-key-papers_entry_] button > div { justify-content: flex-start; width: 100%; }
[class*=st-key-papers_entry_] button p { font-size: 0.86rem; line-height: 1.2; text-align: left; }
.st-key-papers_list h4 { font-size: 0.92rem; margin: 0.5rem 0 0; padding: 0.2rem 0; }
.st-key-papers_header p { margin: 0; font-size: 1.05rem; }
.ds-orderings { display: grid; grid-template-columns: auto 1fr; gap: 0.35rem 0.9rem; font-size: 0.9rem; }
.ds-orderings .verdict { white-space: nowrap; font-weight: 600; }
.ds-orderings .why { opacity: 0.85; font-size: 0.84rem; }
</style>
"""
