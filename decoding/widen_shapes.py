"""Shapes that the embedded pair widens to: whole numbers of copies of its width, with heads of the same size."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WideShape:
    """What a GPT-NeoX model looks like from outside; rotary share, residual and context stay those of the source."""

    name: str
    hidden_size: int
    layers: int
    heads: int
    intermediate_size: int
    vocab_size: int

    @property
    def folder(self) -> str:
        """Name of the folder to write, by which tables and pages call the model."""
        return f"widened-{self.name}"


@dataclass(frozen=True)
class WidePair:
    """A target and a draft to widen to."""

    target: WideShape
    draft: WideShape


# From the published configurations. Only pythia-2.8b has the embedded target's heads of 80; 70m, 160m and 410m have
# the draft's heads of 64 (160m takes six copies: in 16 bits a sixth of a weight is rounded once more).
PYTHIA_2_8B = WideShape("pythia-2.8b", 2560, 32, 32, 10240, 50_304)
PYTHIA_70M = WideShape("pythia-70m", 512, 6, 8, 2048, 50_304)
PYTHIA_160M = WideShape("pythia-160m", 768, 12, 12, 3072, 50_304)
PYTHIA_410M = WideShape("pythia-410m", 1024, 24, 16, 4096, 50_304)
# Two copies, two more layers and a padded vocabulary: everything that the large shapes have, for tests.
TINY_TARGET = WideShape("tiny-target", 640, 10, 8, 2560, 4608)
TINY_DRAFT = WideShape("tiny-draft", 256, 3, 4, 1024, 4608)

LIKES: dict[str, WidePair] = {
    "pythia-2.8b": WidePair(PYTHIA_2_8B, PYTHIA_70M),
    "pythia-2.8b+160m": WidePair(PYTHIA_2_8B, PYTHIA_160M),
    "pythia-2.8b+410m": WidePair(PYTHIA_2_8B, PYTHIA_410M),
    "tiny": WidePair(TINY_TARGET, TINY_DRAFT),
}
