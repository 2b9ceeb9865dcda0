"""What the pages share. A page arranges; what it arranges is here, in `viz` and in `decoding`.

    setup("Step through")                 first call of every page: page config, menu, pair (setup.py)
    manager()                             the one pair in memory (models.py)
    start_job(...), job_bar(...)          model work in the worker thread, with progress and cancel (worker.py)
    prompt_picker(...), method_picker(..) widgets that keep their values between pages (controls.py)
    current_run(), keep_run(...)          the run on screen (state.py)
    restore(slot), keep_address(...)      the view in the address bar and back (address.py, links.py)
    download_button(...)                  a file that is there when the browser asks for it (downloads.py)
    as_text(run), chart(...)              every view and chart also as words and tables (as_text.py)
    guarded(), show_error(...)            one sentence instead of a stack trace (errors.py)

Nothing here imports torch at the top: Home draws before torch is loaded.
"""
