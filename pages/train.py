"""Train: start one of the three trainings, watch its curves and its trees, stop it, go on, use what came out."""

import streamlit as st

from pages.ui.setup import setup
from pages.ui.train_form import draw_form
from pages.ui.train_runs import draw_list, followed_trainings, looked_at
from pages.ui.train_style import STYLE
from pages.ui.train_view import draw_training, is_live
from pages.ui.watching import watch

setup("Train")
st.html(STYLE)
watch("train", followed_trainings, looked_at, is_live, draw_list, draw_form, draw_training)
