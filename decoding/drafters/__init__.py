"""All drafters by name."""

from decoding.drafters.base import Drafter
from decoding.drafters.delayed import DelayedDrafter
from decoding.drafters.dynatree import DynaTreeDrafter
from decoding.drafters.dyspec import DySpecDrafter
from decoding.drafters.dyspec_threshold import DySpecThresholdDrafter
from decoding.drafters.eagle2 import Eagle2Drafter
from decoding.drafters.fixed_tree import FixedTreeDrafter
from decoding.drafters.hardware_aware import HardwareAwareDrafter
from decoding.drafters.iid_paths import IIDPathsDrafter
from decoding.drafters.linear import LinearDrafter
from decoding.drafters.lookup_or_draft import LookupOrDraftDrafter
from decoding.drafters.none import NoDrafter
from decoding.drafters.opt_tree import OptTreeDrafter
from decoding.drafters.prompt_lookup import PromptLookupDrafter
from decoding.drafters.salf import SalfDrafter
from decoding.drafters.sequoia import SequoiaDrafter
from decoding.drafters.specexec import SpecExecDrafter
from decoding.drafters.specinfer_widths import SpecInferWidthsDrafter
from decoding.drafters.suffix import SuffixDrafter
from decoding.drafters.token_recycling import TokenRecyclingDrafter

DRAFTERS: dict[str, type[Drafter]] = {
    "none": NoDrafter,
    "linear": LinearDrafter,
    "fixed_tree": FixedTreeDrafter,
    "dynatree": DynaTreeDrafter,
    "dyspec": DySpecDrafter,
    "dyspec_threshold": DySpecThresholdDrafter,
    "specinfer": SpecInferWidthsDrafter,
    "sequoia": SequoiaDrafter,
    "opt_tree": OptTreeDrafter,
    "eagle2": Eagle2Drafter,
    "specexec": SpecExecDrafter,
    "salf": SalfDrafter,
    "hardware_aware": HardwareAwareDrafter,
    "iid_paths": IIDPathsDrafter,
    "delayed": DelayedDrafter,
    "prompt_lookup": PromptLookupDrafter,
    "suffix": SuffixDrafter,
    "lookup_or_draft": LookupOrDraftDrafter,
    "token_recycling": TokenRecyclingDrafter,
}
