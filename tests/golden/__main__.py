"""Make the golden set anew: `python -m tests.golden`."""

from tests.golden.files import write

write()
