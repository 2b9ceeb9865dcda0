"""Sweep: choose what varies, watch the charts fill, see what is best on this machine, open a run in Step through."""

import streamlit as st

from decoding.experiments.experiment import ExperimentWatcher, experiments
from pages.ui.app.setup import setup
from pages.ui.common.errors import need_torch
from pages.ui.sweep.form import draw_form
from pages.ui.sweep.runs import show_decoded, show_opened
from pages.ui.sweep.view import PAGE, STYLE, draw_experiment, entry_words

setup("Sweep")
st.html(STYLE)
need_torch()
show_opened()
show_decoded()
PAGE.watch(lambda: PAGE.followed(experiments(), ExperimentWatcher), entry_words, draw_form, draw_experiment)
