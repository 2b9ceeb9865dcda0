"""The papers' methods by name, with their defaults, and the configurations that the papers report."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from decoding import drafters
from decoding.methods.method import Method
from decoding.trace.records import Setting
from decoding.verifiers import NSSVerifier, SpecInferVerifier, SpecInferWithoutReplacementVerifier, TraversalVerifier

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            name="autoregressive",
            label="Autoregressive",
            summary="The target alone, one token per pass.",
            paper="The baseline of every comparison",
            drafter=drafters.NoDrafter(),
        ),
        Method(
            name="linear",
            label="Linear chain",
            summary="The draft proposes one chain of K tokens; the longest prefix that agrees is accepted.",
            paper="Leviathan et al. 2023; baseline of both DynaTree papers",
            drafter=drafters.LinearDrafter(),
        ),
        Method(
            name="fixed_tree",
            label="Fixed tree",
            summary="Every node gets B children down to depth D; improbable paths are pruned before verification.",
            paper="DynaTree, earlier version (adaptive pruning); baseline of the later one",
            drafter=drafters.FixedTreeDrafter(),
        ),
        Method(
            name="dynatree",
            label="DynaTree",
            summary="Breadth follows the draft's confidence, depth the path probability, thresholds recent acceptance.",
            paper="DynaTree: confidence-aware adaptive tree speculative decoding",
            drafter=drafters.DynaTreeDrafter(),
        ),
        Method(
            name="dyspec",
            label="DySpec greedy",
            summary="Samples each node where it is most likely to be accepted; the paper sets draft temperature 0.6.",
            paper="DySpec, Algorithm 1",
            drafter=drafters.DySpecDrafter(),
            verifier=SpecInferWithoutReplacementVerifier(),
        ),
        Method(
            name="dyspec_threshold",
            label="DySpec threshold",
            summary="Level by level, samples siblings while their value is high; the paper sets draft temperature 0.6.",
            paper="DySpec, Algorithm 2",
            drafter=drafters.DySpecThresholdDrafter(),
            verifier=SpecInferWithoutReplacementVerifier(),
        ),
        Method(
            name="specinfer",
            label="SpecInfer widths",
            summary="Every level has its own number of children per node, sampled independently or the likeliest ones.",
            paper="Miao et al. 2023; baseline of DySpec",
            drafter=drafters.SpecInferWidthsDrafter(),
            verifier=SpecInferVerifier(),
        ),
        Method(
            name="sequoia",
            label="Sequoia",
            summary="The best shape for the pair's measured acceptance by child rank, sampled without replacement.",
            paper="Chen et al. 2024; baseline of DySpec",
            drafter=drafters.SequoiaDrafter(),
            verifier=SpecInferWithoutReplacementVerifier(),
        ),
        Method(
            name="opt_tree",
            label="OPT-Tree",
            summary="Grows level by level and keeps the N likeliest nodes, until a level adds too little.",
            paper="Wang et al. 2025",
            drafter=drafters.OptTreeDrafter(),
            verifier=NSSVerifier(),
        ),
        Method(
            name="eagle2",
            label="EAGLE-2 beam",
            summary="A beam of the k likeliest nodes per level, re-ranked to the N likeliest of all.",
            paper="Li et al. 2024; baseline of SALF & TALF",
            drafter=drafters.Eagle2Drafter(),
            verifier=NSSVerifier(),
        ),
        Method(
            name="specexec",
            label="SpecExec optimal",
            summary="Searches the N likeliest nodes, the B best unexpanded ones per draft forward.",
            paper="Svirschevski et al. 2024; baseline of SALF & TALF",
            drafter=drafters.SpecExecDrafter(),
            verifier=NSSVerifier(),
        ),
        Method(
            name="salf",
            label="SALF",
            summary="The SpecExec search, stopped as soon as the next batch is expected to add too little.",
            paper="SALF & TALF, Algorithm 2",
            drafter=drafters.SalfDrafter(),
            verifier=NSSVerifier(),
        ),
        Method(
            name="hardware_aware",
            label="Hardware-aware",
            summary="Depth, width and size with the most expected tokens per second at this machine's costs.",
            paper="Draftscope: measured costs in place of fixed settings",
            drafter=drafters.HardwareAwareDrafter(),
        ),
        Method(
            name="iid_paths",
            label="i.i.d. paths",
            summary="K independent paths of L tokens that share common prefixes.",
            paper="Dynamic delayed tree expansion, Section 4",
            drafter=drafters.IIDPathsDrafter(),
            verifier=TraversalVerifier(),
        ),
        Method(
            name="delayed",
            label="Delayed expansion",
            summary="A trunk of L1 tokens, then K independent paths of L2 tokens below its end.",
            paper="Dynamic delayed tree expansion, Definition 5.2",
            drafter=drafters.DelayedDrafter(),
            verifier=SpecInferVerifier(),
        ),
        Method(
            name="prompt_lookup",
            label="Prompt lookup",
            summary="Copies what followed the last tokens where they stood earlier in the text; no draft model.",
            paper="Saxena 2023, Prompt lookup decoding",
            drafter=drafters.PromptLookupDrafter(),
        ),
        Method(
            name="suffix",
            label="Suffix decoding",
            summary="A tree of what followed the last tokens earlier in the text, by how often it did; no draft model.",
            paper="SuffixDecoding (Oliaro et al. 2024)",
            drafter=drafters.SuffixDrafter(),
        ),
        Method(
            name="lookup_or_draft",
            label="Lookup or draft",
            summary="Copies from the text where it repeats itself, and asks the draft model for a chain elsewhere.",
            paper="Draftscope",
            drafter=drafters.LookupOrDraftDrafter(),
        ),
        Method(
            name="token_recycling",
            label="Token recycling",
            summary="A tree of what the target found likely the last time it read each token; no draft model.",
            paper="Luo et al. 2024",
            drafter=drafters.TokenRecyclingDrafter(),
        ),
    )
}

# Figure 2 and line 7 of Algorithm 1 move both confidence thresholds and D_0 alone; line 6 rebuilds the cache.
_AS_THE_PAPER_ADAPTS = {
    "history_confidence_low": True,
    "history_deep_probability": False,
    "cache_policy": "rebuild",
}

_PRESETS: dict[str, Method] = {
    "linear K=8 (WikiText-2)": METHODS["linear"],
    "linear K=5 (PG-19)": METHODS["linear"].with_settings(length=5),
    "linear K=6 (earlier version)": METHODS["linear"].with_settings(length=6),
    "linear K=7 (earlier version)": METHODS["linear"].with_settings(length=7),
    "fixed tree D8 B3 (main table)": METHODS["fixed_tree"],
    "fixed tree D8 B3 tau 0.03 (best of the sweep)": METHODS["fixed_tree"].with_settings(prune_probability=0.03),
    "fixed tree D8 B3 as printed": METHODS["fixed_tree"].with_settings(verify_pruned=True),
    "fixed tree D5 B2 (ablation)": METHODS["fixed_tree"].with_settings(max_depth=5, branching=2),
    "fixed tree D5 B2 tau 0.05 (ablation)": METHODS["fixed_tree"].with_settings(
        max_depth=5, branching=2, prune_probability=0.05
    ),
    "fixed tree D6 B2 tau 0.05 (earlier version)": METHODS["fixed_tree"].with_settings(
        max_depth=6, branching=2, prune_probability=0.05
    ),
    "fixed tree D7 B2 tau 0.05 (earlier version)": METHODS["fixed_tree"].with_settings(
        max_depth=7, branching=2, prune_probability=0.05
    ),
    "DynaTree breadth only (ablation)": METHODS["dynatree"].with_settings(dynamic_depth=False, history=False),
    "DynaTree breadth + depth (ablation)": METHODS["dynatree"].with_settings(history=False),
    "DynaTree (main table)": METHODS["dynatree"],
    "DynaTree as printed": METHODS["dynatree"].with_settings(verify_pruned=True),
    "DynaTree, Section 3 as described": METHODS["dynatree"].with_settings(
        history_statistic="accepted_over_drafted", **_AS_THE_PAPER_ADAPTS
    ),
    "DynaTree, Algorithm 1 as printed": METHODS["dynatree"].with_settings(
        verify_pruned=True, history_statistic="committed_over_drafted", **_AS_THE_PAPER_ADAPTS
    ),
    "DynaTree, first level may branch": METHODS["dynatree"].with_settings(branch_first_level=True),
    "DynaTree as published, rollback + rebuild": METHODS["dynatree"].with_settings(
        cache_policy="rebuild", history_statistic="committed_over_drafted"
    ),
    "linear K=8, sampled": METHODS["linear"].with_settings(sampled=True, verifier="naive"),
    "linear K=8, sampled, block verification": METHODS["linear"].with_settings(sampled=True, verifier="block"),
    "DySpec tree of 64": METHODS["dyspec"],
    "DySpec threshold 1/64": METHODS["dyspec_threshold"],
    "DySpec threshold 0.001, tree of 768 (offloading)": METHODS["dyspec_threshold"].with_settings(
        threshold=0.001, node_budget=768
    ),
    # Begun where the embedded pair's texts end: from 1/64 the first trees have hundreds of nodes, and few follow them
    "DySpec threshold, 64 nodes on average": METHODS["dyspec_threshold"].with_settings(threshold=0.1, mean_nodes=64),
    "SpecInfer <1,1,3,1,1,1,1,1>": METHODS["specinfer"],
    # As many tokens as trees of 64 and of 768: sequences that share nothing but what they draw alike
    "SpecInfer, 8 sequences of 8": METHODS["specinfer"].with_settings(widths="8,1*7"),
    "SpecInfer, 16 sequences of 48 (offloading)": METHODS["specinfer"].with_settings(widths="16,1*47"),
    "Sequoia tree of 64": METHODS["sequoia"],
    "Sequoia tree of 768 (offloading)": METHODS["sequoia"].with_settings(node_budget=768, max_depth=24),
    "EAGLE-2 N=60 k=10 depth 7 (baseline of SALF)": METHODS["eagle2"],
    "optimal search N=60 B=10 (baseline of SALF)": METHODS["specexec"],
    "SALF th 0.6": METHODS["salf"],
    "SALF th 0.5 (fastest mean)": METHODS["salf"].with_settings(gain_threshold=0.5),
    "hardware-aware, 64 nodes at most": METHODS["hardware_aware"].with_settings(node_budget=64),
    "hardware-aware, nothing learned on the way": METHODS["hardware_aware"].with_settings(learn=False),
    "i.i.d. K=4 L=8, traversal": METHODS["iid_paths"].with_settings(length=8),
    "i.i.d. K=4 L=8, SpecInfer": METHODS["iid_paths"].with_settings(length=8, verifier="specinfer"),
    "i.i.d. K=4 L=8, SpecTr": METHODS["iid_paths"].with_settings(length=8, verifier="spectr"),
    "delayed K=4 L1=2 L2=4, SpecInfer": METHODS["delayed"],
    "delayed K=4 L1=2 L2=4, Khisti": METHODS["delayed"].with_settings(verifier="khisti"),
}

PRESETS: dict[str, Method] = {name: replace(method, label=name) for name, method in _PRESETS.items()}

# Names that rows and files hold, each with part of what it says: understood, but not offered.
FORMER_PRESETS = ("DynaTree as printed", "DynaTree as published, rollback + rebuild")

# What the app begins with. In the paper's default the first level is one token: where the draft is unsure of it, it is
# pruned and nothing is left to verify.
START = PRESETS["DynaTree, first level may branch"]


LONGEST_NAME = 14  # of a trained selector: its name may have its kind and the time of its start


def changed_settings(method: Method, named: Method | None = None) -> dict[str, Setting]:
    """Settings that differ from those of the method that its name says, or of another one."""
    named = named or METHODS.get(method.name, method)
    # Settings of a verifier that was put in another's place differ from the defaults of that one.
    defaults = named.with_settings(verifier=method.verifier.name).all_settings() | {"verifier": named.verifier.name}
    usual = {name: defaults.get(name, method.infos[name].default) for name in method.all_settings()}
    return {name: value for name, value in method.all_settings().items() if value != usual[name]}


def settings_words(method: Method, settings: Mapping[str, Setting] | None = None) -> list[str]:
    """Some settings, or all, in the fewest words: `first level may branch`, `D_max 10`, `Khisti`.

    A draft head is in the name; what is empty by default is measured with the pair, and nobody's choice.
    """
    words = []
    for name, value in (method.settings() if settings is None else settings).items():
        info = method.infos[name]
        if name == "draft_head" or (info.default == "" and name not in method.drafter.optional):
            continue
        if isinstance(value, bool):
            off = info.short.replace(" may ", " may not ")
            words.append(info.short if value else off if off != info.short else f"no {info.short}")
        elif name == "verifier":
            words.append(method.verifier.label)
        elif isinstance(value, str):
            known = value if len(value) <= LONGEST_NAME or info.default else ""
            words.append(info.words(value) if info.choices else f"{info.short} {known}".rstrip())
        else:
            words.append(f"{info.short} {value:g}")
    return words


def method_label(method: Method, also: Collection[str] = ()) -> str:
    """What every page and every file calls a configuration: `SALF + TALF head · th 0.5, D_max 4`.

    `also`: settings that are named although they have their usual value.
    """
    named = METHODS.get(method.name)
    label = (named.with_settings(draft_head=method.draft_head) if named else method).label
    changed = changed_settings(method)
    named_too = {name: value for name, value in method.all_settings().items() if name in changed or name in also}
    return f"{label} · {', '.join(words)}" if (words := settings_words(method, named_too)) else label
