"""What drafting a tree takes by its size, against Equation 3 of DySpec."""

from decoding.common.errors import run_main
from decoding.papers.measured.tree_times import main

if __name__ == "__main__":
    run_main(main)
