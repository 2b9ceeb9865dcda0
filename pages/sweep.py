"""Sweep: choose what varies, watch its charts fill, see what is best here, open any run in Step through."""

import streamlit as st

from pages.ui.setup import setup
from pages.ui.sweep_form import draw_form
from pages.ui.sweep_list import draw_list, followed_experiments, looked_at
from pages.ui.sweep_open import show_opened
from pages.ui.sweep_style import STYLE
from pages.ui.sweep_view import draw_experiment, is_live
from pages.ui.torch_there import need_torch
from pages.ui.watching import watch

setup("Sweep")
st.html(STYLE)
need_torch()
show_opened()
watch("sweep", followed_experiments, looked_at, is_live, draw_list, draw_form, draw_experiment)
