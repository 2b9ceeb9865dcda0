"""Draft tokens by rank (SALF & TALF, Figure 2 and Appendix A)."""

from decoding.common.errors import run_main
from decoding.papers.measured.draft_ranks import main

if __name__ == "__main__":
    run_main(main)
