"""What can be set before a training starts: one line per argument of its command, which a page shows as a widget.

Torch-free: what few need stands in the parser of the command alone.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from decoding.heads.store import LOSSES
from decoding.training.folder import Kind


@dataclass(frozen=True)
class Field:
    """One argument of a training command.

    Attributes:
        flag: as the command takes it; without dashes it is given by its place.
        label, meaning: words beside the widget, and what it does in a sentence.
        default: of the command; "" and None leave the argument away.
        low, high, step: what a number can be; choices: what a word can be, with the words shown for them.
        more: whether it stands among the settings that few need.
        placeholder: what an empty text means.
    """

    flag: str
    label: str
    meaning: str
    default: Any
    low: float | None = None
    high: float | None = None
    step: float | None = None
    choices: Mapping[str, str] | None = None
    more: bool = False
    placeholder: str = ""

    @property
    def name(self) -> str:
        """What parsed arguments and keys of widgets call it."""
        return self.flag.removeprefix("--").replace("-", "_")

    def add_to(self, parser: argparse.ArgumentParser, **more: Any) -> None:
        """Have a command take it; `more` is of `add_argument`."""
        usual = "" if self.default in ("", None, False) else f" Default: {self.default}."
        asked: dict[str, Any] = {"help": (self.meaning + usual).replace("%", "%%"), "default": self.default}
        if self.choices is not None:
            asked["choices"] = tuple(self.choices)
        elif self.default is False:
            asked["action"] = "store_true"
        elif self.default == "":
            asked |= {"default": None, "metavar": "DIR", "type": Path}
        else:
            asked |= {"type": int if self.default is None else type(self.default), "metavar": "N"}
        if not self.flag.startswith("--"):
            asked["nargs"] = "?"
        parser.add_argument(self.flag, **asked | more)


CORPUS = "corpus"
VERIFIERS = {"specinfer": "SpecInfer", "nss": "NSS", "naive_tree": "Naive tree", "spectr": "SpecTr", "khisti": "Khisti",
             "traversal": "Traversal"}  # fmt: skip
RATE = Field("--learning-rate", "Learning rate", "Its peak; where a loss is no number, a lower one.", 3e-4, 1e-6, 1.0,
             more=True)  # fmt: skip
DEVICE = Field("--device", "Device", "Automatic takes a GPU where there is one.", "auto", more=True,
               choices={"auto": "automatic", "cuda": "GPU (CUDA)", "mps": "Apple GPU", "cpu": "CPU"})  # fmt: skip
SEED = Field("--seed", "Seed", "Of first weights and batches: the same seed gives the same training.", 0,
             0, 2**31 - 1, 1, more=True)  # fmt: skip
HEAD = (
    Field("--loss", "Loss", "EAGLE: next token and feature at every place of the text. HASS: the same along a chain of "
          "the head's own features. TALF: every node of a tree that the target builds.", "talf", choices=LOSSES),
    Field("--start-from", "Go on from", "A trained head to begin with. As in the paper HASS and TALF go on from a head "
          "that was trained with EAGLE's loss.", ""),
    Field("--corpus", "Folder of text", "A folder of .txt or .txt.gz files on this machine. Empty: the target itself "
          "continues the sample prompts.", "", placeholder="none: the target continues the sample prompts"),
    Field("--top-k", "Width of the training tree", "Nodes per level of the tree that the target builds; TALF only.",
          4, 1, 64, 1),
    Field("--windows", "Windows", "Pieces of text that are prepared to train on; preparing takes as long as they are "
          "many.", 1024, 1, 10**7, 64),
    Field("--roots", "Tokens of a window", "The head is trained behind each of them.", 256, 8, 32_768, 32, more=True),
    Field("--depth", "Depth", "Forwards of the head that are trained: the root's and those of the levels below.",
          3, 1, 8, 1, more=True),
    Field("--batch", "Batch", "Windows of a step.", 4, 1, 4096, 1, more=True),
    Field("--mlp-size", "Size of the MLP", "Its inner size; empty: 1.6 times the hidden size.", None, 1, 2**20, 64,
          more=True),
    Field("--continued", "Continued windows", "Share of the windows that the target goes on with after their first "
          "quarter: text as a head meets it.", 0.5, 0.0, 1.0, 0.05, more=True),
    Field("--temperature", "Their temperature", "At which the target goes on with them.", 1.0, 0.05, 4.0, 0.05,
          more=True),
    RATE, DEVICE, SEED,
)  # fmt: skip
EMBEDDED = (
    Field(CORPUS, "Folder of text", "A folder of .txt or .txt.gz files on this machine; a file's name up to the first "
          "dot is its kind of text, and the last 2% of each are held out.", "",
          placeholder="such as /home/me/texts"),
    Field("--python-source", "Python's standard library as well", "Adds its source files as one more kind of text.",
          False),
    Field("--start-from", "Go on from", "A folder with a trained target and draft to begin with; empty: random "
          "weights.", "", more=True, placeholder="nothing: random weights"),
    Field("--threads", "Threads", "Of the processor; empty: all. One less leaves the app quicker.", None, 1, 256, 1,
          more=True),
    replace(RATE, default=0.02),
    DEVICE,
    SEED,
)  # fmt: skip
SELECTOR = (
    Field("--verifier", "Verifier", "Whose expected tokens it learns: a selector serves this verifier alone.",
          "specinfer", choices=VERIFIERS),
    Field("--corpus", "Folder of text", "A folder of .txt or .txt.gz files on this machine. Empty: the target itself "
          "continues the sample prompts.", "", placeholder="none: the target continues the sample prompts"),
    Field("--texts", "Texts", "Pieces of text whose roots are labelled to learn from; labelling takes as long as they "
          "are many, and is kept for the other verifiers.", 108, 1, 10**6, 12),
    Field("--held-out", "Held-out texts", "Pieces of text that it is measured on.", 18, 1, 10**6, 6, more=True),
    Field("--roots", "Roots of a text", "Places of a text at which trees are labelled.", 10, 1, 1000, 1, more=True),
    Field("--spacing", "Spacing", "Tokens between two roots.", 16, 1, 1000, 1, more=True),
    Field("--trees", "Trees of a root", "Drawn trees whose labels are averaged: more make them steadier.", 4, 1, 64, 1,
          more=True),
    Field("--batch", "Batch", "Roots of a step, each under one sampling.", 256, 1, 65_536, 32, more=True),
    Field("--penalty", "Penalty (λ)", "Weight of roots at which it does worse than the best static shape (Eq. 12).",
          1.0, 0.0, 100.0, 0.1, more=True),
    Field("--worst", "Worst share (α)", "Share of the roots that the penalty is taken over (Eq. 12).", 0.1, 0.01, 1.0,
          0.05, more=True),
    Field("--dropout", "Dropout", "Share of hidden units left out in a step.", 0.2, 0.0, 0.95, 0.05, more=True),
    Field("--weight-decay", "Weight decay", "Pulls the weights towards 0.", 0.02, 0.0, 1.0, more=True),
    Field("--time", "Time of a pass", "By its rows as measured here, or as the paper's Eq. 11 counts it.", "rows",
          choices={"rows": "by its rows", "paper": "as in the paper"}, more=True),
    replace(RATE, default=1e-3), DEVICE, SEED,
)  # fmt: skip
FIELDS: dict[Kind, tuple[Field, ...]] = {"head": HEAD, "selector": SELECTOR, "embedded": EMBEDDED}
# Minutes and steps that the form begins with.
LENGTHS: dict[Kind, tuple[float, int]] = {"head": (10.0, 600), "selector": (1.0, 2000), "embedded": (60.0, 5000)}
