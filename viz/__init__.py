"""Pure functions: a trace in, a figure or a text out. No torch, no Streamlit."""
