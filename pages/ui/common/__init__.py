"""What every part of a page stands on.

charts.py      a Plotly figure with a sentence for its picture and its numbers behind a button; which tokens are counted
downloads.py   download buttons whose files are still there when the browser asks for them
errors.py      what goes wrong, or cannot be without torch, in one sentence; escaping for Markdown
models.py      the one pair in memory, shared by all browser sessions
scheduler.py   jobs of all sessions take turns with the models, and end when their browser stays away
run_store.py   the runs that a session keeps, in memory and on disk
state.py       what one session has on screen: run, iteration, node; runs set aside; how a run becomes one of them
worker.py      how a page starts a job in a slot, shows it, cancels it, finds it again after a reload
"""
