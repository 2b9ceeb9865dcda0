"""Order of a tree's rows (DySpec, Appendix C): blocks of the mask, time of attention, identical tokens."""

from decoding.common.errors import run_main
from decoding.papers.measured.mask_order import main

if __name__ == "__main__":
    run_main(main)
