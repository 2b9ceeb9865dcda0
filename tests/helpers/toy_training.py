"""A training of seconds in a process of its own: a line is fitted, and a hand-written tree stands for what is drafted.

python -m tests.helpers.toy_training --out DIR --steps 400 --pause 0.01
"""

import argparse
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from decoding.jobs.process import conduct, preparing
from decoding.trace.records import RunTrace
from decoding.training.folder import Training, TrainingSettings
from tests.helpers.traces import bonus, dynatree_recovered, fallback, run_of

LEARNT = 60  # steps after which the tree is the better one


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.helpers.toy_training")
    made.add_argument("--out", type=Path, required=True)
    made.add_argument("--resume", action="store_true")
    made.add_argument("--steps", type=int, default=200)
    made.add_argument("--pause", type=float, default=0.0, help="seconds that each step sleeps")
    made.add_argument("--diverge-at", type=int, default=-1, help="step whose loss is no number")
    made.add_argument("--loss", default="talf")
    return made


def learner(args: argparse.Namespace):
    """A weight that becomes 3 by gradient descent on batches that are a function of the step's number."""
    import torch

    class Toy:
        device = torch.device("cpu")

        def __init__(self) -> None:
            self.weight = torch.zeros(1, requires_grad=True)
            self.optimiser = torch.optim.AdamW([self.weight], lr=0.05)
            self.steps = 0

        def step(self, number: int, share: float) -> Mapping[str, float]:
            x = torch.randn(8, generator=torch.Generator().manual_seed(number))
            loss = ((self.weight * x - 3 * x) ** 2).mean()
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            self.steps = number + 1
            time.sleep(args.pause)
            return {"loss": float("nan") if number == args.diverge_at else float(loss.detach())}

        def evaluate(self) -> Mapping[str, float]:
            missed = abs(float(self.weight.detach()) - 3)
            return {"held_out_loss": missed**2, "acceptance": 1 / (1 + missed)}

        def tree(self) -> RunTrace:
            better = [bonus(), dynatree_recovered(), bonus()]
            return run_of(better if self.steps > LEARNT else [fallback(), dynatree_recovered(), fallback()])

        def state(self) -> Mapping[str, Any]:
            return {"weight": self.weight.detach().clone(), "optimiser": self.optimiser.state_dict()}

        def load_state(self, state: Mapping[str, Any]) -> None:
            with torch.no_grad():
                self.weight.copy_(state["weight"])
            self.optimiser.load_state_dict(state["optimiser"])

    return Toy()


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    args, _ = parser().parse_known_args(words)  # a form may ask for more than a toy knows
    training = Training(args.out)

    def prepare():
        if not args.resume:
            command = ("-m", "tests.helpers.toy_training", *words)
            settings = {"loss": args.loss, "steps": args.steps}
            name = "TALF head, toy pair, 2026-11-22"
            training.begin(TrainingSettings("head", name, command, settings, {}, datetime.now().isoformat()))
        preparing(training, "loading torch")
        from decoding.training.loop import PhasePlan, train

        plan = PhasePlan(
            steps=args.steps, log_every_s=0.05, evaluate_every_s=0.2, tree_every_s=0.3, checkpoint_every_s=0.1
        )
        return lambda: train(
            learner(args), training, plan, phase="training the toy", belongs_to={"loss": args.loss}, resume=args.resume
        )

    return conduct(training, prepare)


if __name__ == "__main__":
    sys.exit(main())
