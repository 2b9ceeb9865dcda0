"""What every part of a page stands on: the session's run, the models and their worker, errors, charts, downloads."""
