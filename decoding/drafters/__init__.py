"""All drafters by name."""

from decoding.drafters.base import Drafter, NoDrafter
from decoding.drafters.dynatree import DynaTreeDrafter
from decoding.drafters.dyspec import DySpecDrafter, DySpecThresholdDrafter
from decoding.drafters.hardware_aware import HardwareAwareDrafter
from decoding.drafters.iid import DelayedDrafter, IIDPathsDrafter, SpecInferWidthsDrafter
from decoding.drafters.levels import FixedTreeDrafter, LinearDrafter
from decoding.drafters.prompt_lookup import LookupOrDraftDrafter, PromptLookupDrafter
from decoding.drafters.ranked import Eagle2Drafter, OptTreeDrafter, SalfDrafter, SpecExecDrafter
from decoding.drafters.sequoia import SequoiaDrafter
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
