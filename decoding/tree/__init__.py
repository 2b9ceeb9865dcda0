"""The draft tree, and the draft that a drafter hands over."""
