"""The latency model of delayed trees (Eq. 11) against what their passes took."""

from decoding.common.errors import run_main
from decoding.papers.measured.action_times import main

if __name__ == "__main__":
    run_main(main)
