import streamlit as st
from pages.ui.setup import setup
setup("Home")
