"""How far draft and target are apart, and how often each solver accepts, by depth (Figure 1 of delayed expansion)."""

from decoding.common.errors import run_main
from decoding.papers.measured.depth_divergence import main

if __name__ == "__main__":
    run_main(main)
