"""Every term on the screen, explained in one plain sentence.

explain_term("Draft tree")     # the sentence of "draft tree"; case is ignored, ALIASES lead to the same entry
GROUPS                         # {heading: {term: sentence}}, the order in which the Learn page shows them
TERMS                          # all of them in one dictionary, keys in lower case

What a verifier and a method do stands with them, in `VERIFIERS` and `METHODS`; the Learn page shows it beside these.
"""

IDEA: dict[str, str] = {
    "target": "The large model whose text you want: the output follows its distribution, whatever the draft guesses.",
    "draft": "The small, fast model that guesses what the target will write; also the phase in which it does so.",
    "speculative decoding": "A small model guesses several tokens ahead and the large one checks all of them in one "
    "pass, which takes little longer than a pass for a single token.",
    "tree speculative decoding": "Speculative decoding with several guesses per position: they form a tree, and "
    "the target checks all of its branches in the same pass.",
    "drafter": "The rule that builds the draft tree (how wide, how deep, where to stop) from the draft model's "
    "probabilities or from the text so far.",
    "verifier": "The rule that decides, from the target's probabilities, which drafted tokens are accepted.",
    "iteration": "One verification pass of the target and everything around it: draft, verify, accept, commit.",
    "prefix": "The text before the tree: the prompt and all tokens committed so far.",
    "autoregressive decoding": "Plain decoding by the target alone, one token per pass: the baseline.",
    "block efficiency": "Committed tokens per verification pass of the target, the tokens of an iteration; plain "
    "decoding has exactly 1.",
    "batch size": "Sequences decoded at once. A larger batch keeps the hardware busy without speculation, "
    "so that each further token to verify costs more of its time.",
    "lossless": "The output has exactly the target's distribution. Each verifier is proven so by enumeration on small "
    "vocabularies, within 1e-9, for every kind of tree it is offered for.",
    "distribution": "The probability that a model gives each possible next token at one position.",
    "byte": "A token such as <0xD9> is one byte of a character that takes several tokens; where a path has all of "
    "them, the last one shows the character and the others show ‥.",
    "token": "The unit of text that the models read and write: a word, part of a word, or a punctuation mark.",
}

PROOF = (
    "**The proof.** On vocabularies of 3 and 4 tokens, for every drafter with every verifier that is offered for its "
    "trees, the probabilities of each emitted text, summed over all drafts and all draws of the verifier, equal the "
    "target's within 1e-9. *Verifiers* shows the exact probabilities at a node of a real tree. Greedy output needs no "
    "distribution: the last row of the table on *Compare* tells whether it is identical to plain decoding, token for "
    "token."
)

TREE: dict[str, str] = {
    "draft tree": "All continuations that the draft proposes in one iteration; each node is one token.",
    "node": "One drafted token in the draft tree; it continues the path from the root to its parent.",
    "root": "Node 0: the last committed token, from which the tree grows; it is never counted as drafted.",
    "parent": "The node directly above another one on its path.",
    "child": "A node that continues another one by one token.",
    "sibling": "A node with the same parent: another guess for the same position.",
    "leaf": "A node without children in the verified tree: a path ends there.",
    "path": "The nodes from the root down to a node, in order: one possible continuation of the text.",
    "depth": "The number of drafted tokens on the path to a node; the root has depth 0.",
    "draft probability": "The probability the draft gives a token after its parent.",
    "path probability": "The product of the draft probabilities along a path: how likely it is under the draft.",
    "target probability": "The probability the target gives a token after its parent, at temperature 1 unless stated.",
    "draft confidence": "The draft's highest probability for the next token after a node: how sure it is.",
    "branching": "How many children a node gets; DynaTree gives fewer where the draft is sure.",
    "our settings": "The app begins with Draftscope's own settings: DynaTree as in its paper, but its first level may "
    "branch. In the paper it is a single token; if that is pruned, nothing is verified.",
    "multiplicity": "How often the same node was drawn, in trees whose paths are drawn independently.",
    "expansion": "Whether a node was expanded and, if not, which rule stopped it.",
    "early stop": "A node is not expanded because its path probability is below the stop probability.",
    "depth gate": "Beyond the base depth, only paths with at least the deep probability are extended.",
    "pruned": "Drafted, but removed from the tree before verification because its path is too unlikely.",
    "forced out": "Removed from the tree by hand on the What if page, before verification.",
    "node budget": "The largest number of nodes that a tree may have.",
    "draft forward": "One pass of the draft model; drafters that work level by level need one per depth of the tree.",
    "heap": "The draws that could come next: a pop takes the one of highest value and draws its token, and two more "
    "enter the heap, the first draw below the new node and the next draw beside it.",
    "round": "A round takes the B best waiting nodes: if those that can still improve the N best sum to less than the "
    "threshold, drafting stops, else a draft forward scores their children, which wait too.",
    "linear chain": "A tree without branches: a single guess of K tokens in a row.",
    "folded nodes": "Nodes of a large tree that are drawn as one mark; a click on it opens them.",
    "new in this step": "Nodes added by the draft forward of this phase.",
    "drafted": "Proposed by the draft; drafted nodes are counted without the root.",
    "not drafted": "No node of the tree has this token at this position; the reason is next to it.",
    "last committed token": "The root of the tree, where drafting begins.",
}

VERIFYING: dict[str, str] = {
    "verification pass": "The one pass of the target over all nodes of the tree at once.",
    "flatten": "The nodes of the tree are put in one sequence, parents before children, for a single pass.",
    "node order": "Order of the nodes in a pass and in the mask: BFS (breadth-first), DFS (depth-first) or "
    "heavy path; the number beside each counts blocks of 32 x 32 cells of the mask in which some cell is allowed.",
    "heavy path": "Node order that is depth-first and goes at each node to the child with the largest subtree first.",
    "tree attention mask": "What each node may attend to: the prefix, its ancestors and itself, but no other branch.",
    "acceptance test": "The verifier's decision on one node, accepted or rejected; random when decoding samples.",
    "acceptance probability": "The probability that a node passes its test, computed from the distributions of both "
    "models; greedy and NSS verification use the target's alone.",
    "reached and accepted": "The exact probability, over all draws of the verifier, that a node is accepted.",
    "residual": "The target's distribution after a rejection: the draft's share is subtracted, what falls below "
    "0 is cut off, and the rest is scaled to sum to 1.",
    "accepted": "The verifier accepted this drafted token: it is now part of the text.",
    "rejected": "The verifier considered this drafted token and did not accept it.",
    "not reached": "The verifier's path ended above this node or took another branch, so it decided nothing about it.",
    "not verified": "Drafted, but not given to the target.",
    "final token": "The last token of an iteration. It comes from the target: its distribution at a leaf, its residual "
    "after rejections; where a verifier has no residual, greedy and NSS, its own distribution.",
    "bonus token": "The final token after a path accepted down to a leaf of the verified tree: free, as the same pass "
    "computed it; a loss only if it had been drafted there and pruned.",
    "recovered token": "The final token where the path ended above a leaf: the target's own token in place of the "
    "rejected ones.",
    "fallback token": "The final token where nothing was accepted: one token, as in plain decoding.",
    "accepted length": "Accepted drafted tokens of an iteration, without the final token.",
    "acceptance rate (drafted)": "Accepted drafted tokens / all drafted nodes; the final token counts in neither.",
    "acceptance rate (verified)": "Accepted drafted tokens / nodes given to the target; the final token counts in "
    "neither.",
    "node agreement": "Drafted nodes whose token is the target's likeliest after their parent / drafted nodes whose "
    "parent the target saw: of the whole tree, not of the accepted path alone.",
    "expected tokens": "Mean tokens committed by one pass, over all draws of the verifier, final token included.",
    "provenance": "Where a token of the text comes from: the prompt, drafted and accepted, or one of the final tokens.",
    "committed": "Written into the text for good; the next iteration starts after it.",
}

CACHE: dict[str, str] = {
    "kv cache": "Keys and values that a model has computed for earlier tokens, stored so as not to recompute them.",
    "kv slot": "Key/value (KV) entry of one token in the cache; a verification pass writes one per node.",
    "kept": "A KV slot whose token was accepted, so it stays in the cache.",
    "freed": "A KV slot whose node was not accepted: it is reused.",
    "rollback": "KV slots of nodes that were not accepted are freed, as if they had never been computed.",
    "compaction": "KV slots of accepted nodes are moved together in the cache; nothing is recomputed.",
    "rebuild": "All KV slots of the tree are dropped and a second target pass recomputes the committed tokens.",
    "commit": "The accepted path and the final token become text, and the cache keeps only the accepted KV slots.",
    "history adaptation": "Settings follow recent iterations: the draft is trusted more the more is accepted.",
    "window": "The most recent iterations, which history adaptation averages.",
    "prefill": "The first pass of both models, over the whole prompt.",
}

PHASES: dict[str, str] = {
    "build tree": "Drafting outside the forwards: choosing the children of each node and storing the tree.",
    "prune": "The phase that removes unlikely nodes from the tree before the target sees it.",
    "flatten & mask": "The phase that puts the nodes in sequence and builds the mask of what each may attend to.",
    "verify": "The phase in which the target reads all nodes in one pass.",
    "select": "The phase in which the verifier decides on each node and chooses the final token.",
    "commit & kv": "The phase that adds the accepted tokens to the text and updates the KV cache.",
    "history": "The phase in which history adaptation sets the thresholds of the next iteration.",
    "other": "Time of an iteration outside all phases, such as copying results to the CPU.",
    "time of this iteration": "Measured wall time of each phase, one after the other.",
    "iteration strip": "One column per iteration: its height is how many tokens were committed, final one included.",
}

SPEED: dict[str, str] = {
    "new tokens": "Committed tokens after the prompt; figures without loops leave out tokens that repeat earlier text.",
    "throughput": "New tokens per second of wall time, prefill included unless stated otherwise.",
    "ttft": "Time to first token: from the call to the first committed tokens, prefill of both models included.",
    "tpot": "Time per output token after the first tokens: (time of the last token - TTFT) over the tokens after the "
    "first iteration's.",
    "target pass": "One forward pass of the target; with rollback and rebuild an iteration makes two.",
    "speed-up": "How many times the throughput of plain decoding on the same prompt and machine.",
    "peak memory": "The most memory that tensors of this process take on the device at any time during a call.",
    "loop": "The last 16 tokens already occurred in the output: the model repeats itself, which flatters every "
    "speculative method.",
    "measured": "Read from a clock or a counter during the run.",
    "exact": "Computed over all possible draws, without sampling error.",
    "replayed": "Computed from what a run has recorded, without running a model.",
    "estimated": "Computed from a sample or a cost model, so with an error.",
    "live": "The models are running now.",
    "recorded": "Decoded earlier by the real models and saved to a file.",
    "quartiles": "The values below which a quarter and three quarters of the repeats lie; with 3 repeats or fewer, "
    "the lowest and the highest.",
}

SAMPLING: dict[str, str] = {
    "greedy decoding": "The most likely token is taken at each position; nothing is random.",
    "temperature": "How evenly tokens are drawn: 0 always takes the likeliest token, higher values spread further.",
    "top-p": "Tokens are drawn only from the likeliest ones that together reach this probability.",
    "draft temperature": "The temperature of the draft's distribution when the tree is sampled.",
    "seed": "The number that fixes all random draws: the same seed gives the same run.",
    "draw": "A random number of the run, used for a test or to pick a token.",
    "i.i.d. tree": "A tree whose paths are drawn independently of each other, so the same one can come up twice.",
    "without replacement": "Siblings are drawn one after the other, and none can be drawn twice.",
}

GROUPS: dict[str, dict[str, str]] = {
    "The idea": IDEA,
    "Draft tree": TREE,
    "Verification": VERIFYING,
    "Cache, history": CACHE,
    "Phases": PHASES,
    "Speed, numbers": SPEED,
    "Sampling": SAMPLING,
}

TERMS: dict[str, str] = {term: sentence for group in GROUPS.values() for term, sentence in group.items()}

# Other names on the screen for an entry: short forms, panel heads, table columns.
ALIASES: dict[str, str] = {
    "expected block efficiency": "expected tokens",
    "attention mask": "tree attention mask",
    "attends to": "tree attention mask",
    "children": "expansion",
    "mask": "tree attention mask",
    "kv row": "kv slot",
    "kv rows": "kv slot",
    "kv slots": "kv slot",
    "growth": "expansion",
    "target model": "target",
    "draft model": "draft",
    "confidence": "draft confidence",
    "bonus": "bonus token",
    "recovered": "recovered token",
    "fallback": "fallback token",
    "not_reached": "not reached",
    "not_verified": "not verified",
    "depth_gate": "depth gate",
    "early_stop": "early stop",
    "reached and accepted (exact)": "reached and accepted",
    "times drawn": "multiplicity",
    "target's next token": "target probability",
    "probability when drawn": "final token",
    "tests at this place, in order": "acceptance test",
    "tests at this node, in order": "acceptance test",
    "rebuild kv": "rebuild",
    "text": "provenance",
    "time": "time of this iteration",
    "iterations": "iteration",
    "tokens/s": "throughput",
    "tokens per second": "throughput",
    "tokens/s without prefill": "throughput",
    "tokens per iteration": "block efficiency",
    "accepted length, mean": "accepted length",
    "accepted / drafted": "acceptance rate (drafted)",
    "accepted / verified": "acceptance rate (verified)",
    "draft forwards": "draft forward",
    "whole draft": "draft",
    "target passes": "target pass",
    "ttft (ms)": "ttft",
    "tpot (ms)": "tpot",
    "tokens in loops": "loop",
    "acceptance rate": "acceptance rate (drafted)",
    "speed-up over autoregressive": "speed-up",
    "speed-up over hugging face generate": "speed-up",
    "tokens measured": "new tokens",
    "target's probability": "target probability",
    "fold": "folded nodes",
    "root node": "root",
}


# Names of the settings in sentences, as the forms name them; they are declared beside the code that computes, which
# needs torch, and sentences are also written without it.
SETTING_TITLES: dict[str, str] = {
    "acceptance": "Acceptance by rank (P)",
    "base_depth": "Base depth (D_0)",
    "beam_width": "Beam width (k)",
    "branch_first_level": "First level may branch",
    "branch_max": "Children, uncertain (B_max)",
    "branch_mid": "Children, medium (B_mid)",
    "branch_min": "Children, confident (B_min)",
    "branching": "Children per node (B)",
    "children": "Maximum children",
    "confidence_high": "High confidence (τ_h)",
    "confidence_low": "Low confidence (τ_l)",
    "deep_probability": "Depth gate (ρ_deep)",
    "gain_threshold": "Gain threshold (th)",
    "least_share": "Least path probability",
    "length": "Length",
    "max_depth": "Maximum depth (D_max)",
    "node_budget": "Node budget (N_max)",
    "per_matched_token": "Nodes per matched token (α)",
    "prune_probability": "Pruning (τ)",
    "stop_probability": "Early stop (ρ_stop)",
    "threshold": "Threshold (θ)",
    "widths": "Widths",
}


# What history adaptation averages, in words; declared beside the drafter as well.
STATISTIC_WORDS = {
    "accepted_over_depth": "accepted over depth as verified",
    "accepted_over_drafted_depth": "accepted over depth as drafted",
    "accepted_over_drafted": "accepted over drafted (the paper's text)",
    "committed_over_drafted": "committed over drafted (the paper's Algorithm 1)",
    "committed_over_base_depth": "committed over D_0 + 2 (its public code)",
}

# Names of the verifiers in sentences, as their classes give them, which need torch as well.
VERIFIER_TITLES: dict[str, str] = {
    "greedy": "Greedy",
    "nss": "NSS",
    "naive": "Naive",
    "naive_tree": "Naive tree",
    "spectr": "SpecTr",
    "specinfer": "SpecInfer",
    "specinfer_wor": "SpecInfer, no replacement",
    "khisti": "Khisti",
    "block": "Block",
    "traversal": "Traversal",
    "traversal_wor": "Traversal, no replacement",
}


def statistic_words(name: str) -> str:
    """What a sentence calls a statistic of history adaptation."""
    return STATISTIC_WORDS.get(name, name.replace("_", " "))


def setting_title(name: str) -> str:
    """What a sentence calls a setting; the name in words where no sentence of ours names it."""
    return SETTING_TITLES.get(name, name.replace("_", " "))


def verifier_title(name: str) -> str:
    """What a sentence calls a verifier; the name in words where it is none of ours."""
    return VERIFIER_TITLES.get(name, name.replace("_", " "))


ABBREVIATIONS = ("ttft", "tpot", "kv")


def shown_term(term: str) -> str:
    """A term as shown on the screen: abbreviations in capitals."""
    return " ".join(word.upper() if word in ABBREVIATIONS else word for word in term.split(" "))


def explain_term(term: str) -> str:
    """The sentence for a term or one of its aliases, ignoring case; empty for a word without an entry."""
    key = " ".join(term.lower().split())
    return TERMS.get(ALIASES.get(key, key), "")
