"""The linked view of an iteration: its data, its scripts and style, and its exportable forms."""
