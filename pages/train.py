"""Train: start one of the three trainings, watch its curves and trees, stop it, resume it, use the result."""

import streamlit as st

from decoding.training.folder import TrainingWatcher, trainings
from pages.ui.app.setup import setup
from pages.ui.train.form import draw_form
from pages.ui.train.view import PAGE, STYLE, draw_training, entry_words

setup("Train")
st.html(STYLE)
PAGE.watch(lambda: PAGE.followed(trainings(), TrainingWatcher), entry_words, draw_form, draw_training)
