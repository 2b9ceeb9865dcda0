"""The parts of the pages. A page only arranges; what it arranges is here, in `viz` and in `decoding`.

    setup("Step through")                 first call of every page: page config, menu, pair (app/setup.py)
    manager()                             the one pair in memory (common/models.py)
    start_job(...), job_bar(...)          model work in the worker thread, with progress and cancel (common/worker.py)
    prompt_picker(...), method_picker(..) widgets whose values persist between pages (widgets/controls.py)
    current_run(), keep_run(...)          the run on screen (common/state.py)
    known_run(id), store()                runs by the ids in addresses, in memory and on disk (common/run_store.py)
    restore(slot), keep_address(...)      the view to the address bar and back (app/address.py, app/links.py)
    download_button(...)                  a file that is there when the browser asks for it (common/downloads.py)
    chart(...), as_text(run)              charts and views, also as text and tables (common/charts.py, scope/run.py)
    guarded(), show_error(...)            one sentence instead of a stack trace (common/errors.py)

Nothing here imports torch at the top: Home draws before torch is loaded.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The pages by their titles in the menu, and the files that draw them.
PAGES: dict[str, str] = {
    "Home": "app.py",
    "Learn": "pages/learn.py",
    "Step through": "pages/step_through.py",
    "What if": "pages/what_if.py",
    "Tune live": "pages/tune_live.py",
    "Verifiers": "pages/verifiers.py",
    "Compare": "pages/compare.py",
    "Race": "pages/race.py",
    "Train": "pages/train.py",
    "Sweep": "pages/sweep.py",
    "Papers": "pages/papers.py",
    "Your engine": "pages/your_engine.py",
}
LAB = ("Train", "Sweep", "Papers", "Your engine")  # behind one button, so that the menu fits on one line at 1280 pixels
