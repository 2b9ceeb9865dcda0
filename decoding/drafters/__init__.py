"""Every way to build a draft tree, by name."""

from decoding.drafters.base import Drafter
from decoding.drafters.dynatree import DynaTreeDrafter
from decoding.drafters.fixed_tree import FixedTreeDrafter
from decoding.drafters.linear import LinearDrafter
from decoding.drafters.none import NoDrafter

DRAFTERS: dict[str, type[Drafter]] = {
    "none": NoDrafter,
    "linear": LinearDrafter,
    "fixed_tree": FixedTreeDrafter,
    "dynatree": DynaTreeDrafter,
}
