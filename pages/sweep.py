"""Sweep: choose what varies, watch its charts fill, see what is best here, open any run in Step through."""

import streamlit as st

from pages.ui.app.setup import setup
from pages.ui.common.torch_there import need_torch
from pages.ui.sweep.form import draw_form
from pages.ui.sweep.runs import show_opened
from pages.ui.sweep.view import STYLE, draw_experiment, draw_list, followed_experiments, is_live, looked_at
from pages.ui.widgets.watching import watch

setup("Sweep")
st.html(STYLE)
need_torch()
show_opened()
watch("sweep", followed_experiments, looked_at, is_live, draw_list, draw_form, draw_experiment)
