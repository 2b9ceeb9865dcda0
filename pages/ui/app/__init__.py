"""The frame of every page: setup and menu, the pair dialog, the address, the file menu; and the home page."""
