"""Train: start one of the three trainings, watch its curves and its trees, stop it, go on, use what came out."""

import streamlit as st

from pages.ui.app.setup import setup
from pages.ui.train.form import draw_form
from pages.ui.train.view import PAGE, STYLE, draw_training, entry_words, followed_trainings

setup("Train")
st.html(STYLE)
PAGE.watch(followed_trainings, entry_words, draw_form, draw_training)
