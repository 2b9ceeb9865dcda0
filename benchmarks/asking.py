"""What asking a selector takes in real iterations: `python -m benchmarks.asking --before DIR --widen 4`.

Two sessions draft the same trees from the same seed; in one the selector is asked and its answer is not followed.
Their iterations alternate, and the figure is the median of the differences. With `--before`, a checkout of another
commit, a process of that one and one of this take turns, block by block.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median, quantiles

from decoding.common.errors import run_main
from decoding.common.files import ROOT

SHAPE = {"paths": 2, "trunk": 1, "branch": 1}
BLOCKS, ITERATIONS, PROMPT = 6, 40, 64


def blocks(widen: int, name: str, verifier: str, temperature: float) -> Iterator[list[float]]:
    """Seconds that asking took in each iteration, block by block; runs in a checkout of this commit or an older one."""
    import torch

    from decoding.common.prompts import load_prompts
    from decoding.drafters import DelayedDrafter
    from decoding.methods.methods import METHODS
    from decoding.models.pair import load_pair
    from decoding.models.presets import PairSettings
    from decoding.sampling.sampling import Sampling
    from decoding.selector.actions import Action
    from decoding.session.session import DecodeSession, Limits

    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))
    pair, sampling = load_pair(PairSettings(widen=widen)), Sampling(temperature)
    plain = METHODS["delayed"].with_settings(verifier=verifier, **SHAPE)
    asking = METHODS["delayed"].with_settings(verifier=verifier, selector=name)
    drafter = asking.drafter
    if isinstance(drafter, DelayedDrafter):
        known = DecodeSession(pair, asking, [1, 2, 3], sampling, Limits(4)).method.drafter
        asked, action = known.chooser.choose, Action(**SHAPE)

        def in_vain(past):
            found = asked(past)
            return action if isinstance(found, Action) else replace(found, action=action)

        object.__setattr__(known.chooser, "choose", in_vain)
        asking = replace(asking, drafter=known)
    prompts = load_prompts()
    for block in range(BLOCKS):
        ids = pair.vocabulary.encode(prompts[block % len(prompts)].text)[:PROMPT]
        limits = Limits(4 * ITERATIONS, ignore_end_of_text=True, record="none")
        sessions = [DecodeSession(pair, method, ids, sampling, limits) for method in (asking, plain)]
        more: list[float] = []
        for number in range(ITERATIONS):
            if any(session.finished for session in sessions):
                break
            taken = {}
            for place in (0, 1) if number % 2 else (1, 0):
                begun = time.perf_counter()
                sessions[place].step()
                taken[place] = time.perf_counter() - begun
            if number > 1:
                more.append(taken[0] - taken[1])
        yield more


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", metavar="DIR", help="a checkout of another commit, measured in turn with this one")
    parser.add_argument("--widen", type=int, default=1, help="how many times as wide the embedded target is")
    parser.add_argument("--selector", default="nss", help="a stored selector that both have")
    parser.add_argument("--verifier", default="nss", help="the verifier that it was trained for")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    measured = blocks(args.widen, args.selector, args.verifier, args.temperature)
    if args.child:
        for _ in sys.stdin:
            print(json.dumps(next(measured)), flush=True)
        return 0
    own = [word for word in sys.argv[1:] if word != args.before and not word.startswith("--before")]
    folders = {"before": args.before, "now": str(ROOT)} if args.before else {"now": str(ROOT)}
    children = {
        name: subprocess.Popen(
            [sys.executable, __file__, *own, "--child"], cwd=folder, env={**os.environ, "PYTHONPATH": folder},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for name, folder in folders.items()
    }  # fmt: skip
    found: dict[str, list[float]] = {name: [] for name in children}
    for _ in range(BLOCKS):
        for name, child in children.items():
            if child.stdin is None or child.stdout is None:
                raise RuntimeError("a child without pipes")
            child.stdin.write("\n")
            child.stdin.flush()
            found[name] += json.loads(child.stdout.readline())
    for name, child in children.items():
        child.communicate()
        low, _, high = quantiles(found[name], n=4)
        middle, count = 1000 * median(found[name]), len(found[name])
        quartiles = f"quartiles {1000 * low:.3f} to {1000 * high:.3f}"
        print(f"{name}: asking takes {middle:.3f} ms of an iteration, {quartiles}, {count} pairs of iterations")
    return 0


if __name__ == "__main__":
    run_main(main)
