"""Speed on a CUDA GPU with the papers' shapes: widened Pythia-2.8B + 70M, batch 1, interleaved, against its limits.

The widened pair computes what the embedded pair computes, at the cost of the papers' models (see `decoding.widen`):
acceptance is that of a real trained pair, time that of the papers' shapes. A run ends within `--minutes`; what a part
of it has shown is written before the next one begins. Methods are tuned outside loops; `--counted` chooses what the
figures of a comparison count. `docs/gpu.md` says how to begin on a GPU that was never met.
"""

from pathlib import Path

import torch

from benchmarks.gpu import run_part
from benchmarks.gpu.measuring import SAMPLINGS, measure_all
from benchmarks.roofline import run_on_cpu
from decoding.common.errors import PairError, run_main
from decoding.experiments.command import add_counting_argument, arguments
from decoding.models.pair import embedded_pair

PARTS = ("facts", "shapes", "ratios", "ceilings", "stale")


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_counting_argument(parser)
    parser.add_argument("--like", default="pythia-2.8b", help="whose shapes the widened pair takes")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--folder", type=Path, help="where the widened pair lies or is written; a temporary one")
    parser.add_argument("--num-prompts", type=int, default=4)
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--sampling", choices=tuple(SAMPLINGS), help="only this one")
    parser.add_argument("--hf-static", action="store_true", help="with the compiled static cache of transformers")
    parser.add_argument("--minutes", type=float, help="end within so many; 9, and 8 at a first contact")
    parser.add_argument("--roofline", action="store_true", help="only bytes and operations against the ceilings; "
                        "without a GPU of the embedded pair on the CPU")  # fmt: skip
    parser.add_argument("--first-contact", choices=PARTS, metavar="PART",
                        help=f"what a GPU that was never met shows, in parts: {', '.join(PARTS)}")  # fmt: skip
    args = parser.parse_args()
    if args.first_contact:
        return run_part(args.first_contact, args)
    if torch.cuda.is_available():
        return measure_all(args)
    if not args.roofline:
        raise PairError("This benchmark needs a CUDA GPU; on a CPU run python -m benchmarks.methods.")
    return run_on_cpu(args, embedded_pair("cpu"))


if __name__ == "__main__":
    run_main(main)
