"""Draft probability against acceptance, node by node (DySpec, Figure 2)."""

from decoding.common.errors import run_main
from decoding.papers.measured.draft_acceptance import main

if __name__ == "__main__":
    run_main(main)
