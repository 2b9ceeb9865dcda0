"""Train: start one of the three trainings, watch its curves and its trees, stop it, go on, use what came out."""

import streamlit as st

from pages.ui.app.setup import setup
from pages.ui.train.form import draw_form
from pages.ui.train.runs import draw_list, followed_trainings, looked_at
from pages.ui.train.view import STYLE, draw_training, is_live
from pages.ui.widgets.watching import watch

setup("Train")
st.html(STYLE)
watch("train", followed_trainings, looked_at, is_live, draw_list, draw_form, draw_training)
