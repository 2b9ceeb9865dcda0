"""What every word on the screen means, one plain sentence each.

explain_term("Draft tree")     # the sentence of "draft tree"; capitals do not matter, ALIASES lead to the same entry
GROUPS                         # {heading: {term: sentence}}, the order in which the Learn page shows them
TERMS                          # all of them in one dictionary, keys in lower case

What a verifier and a method do stands with them, in `VERIFIERS` and `METHODS`; the Learn page shows it beside these.
"""

IDEA: dict[str, str] = {
    "target": "The large model whose text is wanted: the output follows its distribution, whatever the draft guesses.",
    "draft": "The small, fast model that guesses what the target will say; also the phase in which it guesses.",
    "speculative decoding": "A small model guesses several tokens ahead and the large one checks all of them in one "
    "pass, which costs it little more than a pass for a single token.",
    "tree speculative decoding": "Speculative decoding with several guesses per place: they form a tree, and the "
    "target checks all of its branches in the same pass.",
    "drafter": "The rule by which the draft model's probabilities become a tree: how wide, how deep, where to stop.",
    "verifier": "The rule that decides, from the target's probabilities, which drafted tokens are accepted.",
    "iteration": "One verification pass of the target and everything around it: draft, verify, accept, commit.",
    "prefix": "The text before the tree: the prompt and all tokens committed so far.",
    "autoregressive decoding": "Plain decoding by the target alone, one token per pass: the baseline.",
    "block efficiency": "Committed tokens per verification pass of the target; plain decoding has exactly 1.",
    "lossless": "The output follows exactly the distribution of the target alone: only the time it takes is different.",
    "distribution": "The probabilities that a model gives to every possible next token at one place.",
    "token": "The unit of text that the models read and write: a word, a piece of one, or a sign.",
}

TREE: dict[str, str] = {
    "draft tree": "All continuations that the draft proposes in one iteration; each node is a token, each path a text.",
    "node": "One drafted token at one place of the draft tree; the path from the root to it is what it continues.",
    "root": "Node 0: the last committed token, from which the tree grows; it is never counted as drafted.",
    "parent": "The node directly before another one on its path.",
    "child": "A node that continues another one by one token.",
    "sibling": "A node with the same parent: another guess for the same place.",
    "leaf": "A node without children in the tree that was verified: a path ends there.",
    "path": "The nodes from the root down to a node, in order: one possible continuation of the text.",
    "depth": "How many drafted tokens a path has up to a node; the root has depth 0.",
    "draft probability": "What the draft gives a token after its parent.",
    "path probability": "The product of the draft probabilities along a path: how likely the draft holds all of it.",
    "target probability": "What the target gives a token after its parent, at temperature 1 unless said otherwise.",
    "draft confidence": "The draft's largest probability after a node: how sure it is of the next token.",
    "branching": "How many children a node gets; DynaTree gives fewer where the draft is sure.",
    "multiplicity": "How often the same node was drawn, in trees whose paths are drawn independently.",
    "growth": "Whether a node was expanded, and which rule kept it from growing if not.",
    "early stop": "A node does not grow because its path probability is below the stop probability.",
    "depth gate": "Beyond the base depth only paths of at least the deep probability go on growing.",
    "pruned": "Drafted, but taken out of the tree before verification because its path is too improbable.",
    "forced out": "Taken out of the tree by hand on What if, before verification.",
    "node budget": "The largest number of nodes that a tree may have.",
    "draft forward": "One pass of the draft model; level by level drafters need one per depth of the tree.",
    "linear chain": "A tree without branches: the draft's one guess, K tokens in a row.",
    "folded nodes": "Nodes of a large tree that are drawn as one mark; a click on it opens them.",
    "new in this step": "Nodes that the draft forward of this phase has added.",
    "drafted": "Proposed by the draft; drafted nodes are counted without the root.",
    "not drafted": "No node of the tree has this token at its place; which rule kept it out stands beside it.",
    "last committed token": "The root of the tree, from which drafting begins.",
}

VERIFYING: dict[str, str] = {
    "verification pass": "The one pass of the target over all nodes of the tree at once.",
    "flatten": "The nodes of the tree are written in a row, parents before children, so that one pass can read them.",
    "tree attention mask": "Says which rows a row may see: the prefix, its own ancestors and itself, no other branch.",
    "acceptance test": "The verifier's decision on one node, by chance where decoding samples: accepted or rejected.",
    "acceptance probability": "How likely a node passes its test, computed from both distributions.",
    "reached and accepted": "The exact probability, over all draws of the verifier, that a node ends in the text.",
    "residual": "What is left of the target's distribution after a rejection: the draft's share is subtracted and "
    "the rest is scaled to sum to 1.",
    "accepted": "The verifier kept this drafted token: it is now part of the text.",
    "rejected": "The verifier came to this drafted token's place and did not keep it.",
    "not reached": "The verifier went another way before it came to this node, so it decided nothing about it.",
    "not verified": "Drafted, but not given to the target.",
    "final token": "The last token of an iteration: it comes from the target's distribution, not from the draft.",
    "bonus token": "The final token after a path that was accepted down to a leaf of the verified tree: free, as the "
    "same pass holds it, unless it had been drafted there and was pruned: then it is a loss.",
    "recovered token": "The final token where the path ended above a leaf: the target's own token in place of the "
    "rejected ones.",
    "fallback token": "The final token where nothing was accepted: one token, as plain decoding would give.",
    "accepted length": "Accepted drafted tokens of an iteration, without the final token.",
    "acceptance rate (drafted)": "Accepted drafted tokens over all drafted nodes; the final token is in neither.",
    "acceptance rate (verified)": "Accepted drafted tokens over the nodes given to the target; the final token is in "
    "neither.",
    "expected tokens": "Tokens that one pass commits on average over all draws of the verifier, final token included.",
    "provenance": "Where a token of the text comes from: the prompt, drafted and accepted, or one of the final tokens.",
    "committed": "Written into the text for good; the next iteration starts after it.",
}

CACHE: dict[str, str] = {
    "kv cache": "What a model has computed for earlier tokens (keys and values), kept so as not to do it again.",
    "kv row": "Keys and values of one token; a verification pass writes one row per node.",
    "kept": "A row of the cache whose token was accepted, so that it stays.",
    "freed": "A row of the cache whose node was not accepted: its place is used again.",
    "rollback": "The rows of nodes that were not accepted leave the cache, as if they had never been computed.",
    "compaction": "The rows of accepted nodes are moved together in the cache; nothing is computed again.",
    "rebuild": "All rows of the tree are dropped and the committed tokens are computed by a second target pass.",
    "commit": "The accepted path and the final token become text, and the cache keeps their rows only.",
    "history adaptation": "Settings follow the recent past: much accepted, draft bolder; little accepted, draft less.",
    "window": "The last iterations that history adaptation looks at.",
    "prefill": "The first pass of both models, over the whole prompt.",
}

PHASES: dict[str, str] = {
    "build tree": "What drafting does beside its forwards: it chooses the children of each node and keeps the tree.",
    "prune": "The phase that takes improbable nodes out of the tree before the target sees it.",
    "flatten & mask": "The phase that puts the tree into rows and builds the mask of what each row may see.",
    "verify": "The phase in which the target reads all rows in one pass.",
    "select": "The phase in which the verifier decides on each node and chooses the final token.",
    "commit & kv": "The phase that writes the accepted tokens into the text and puts the cache in order.",
    "history": "The phase in which history adaptation sets the thresholds of the next iteration.",
    "other": "Time of an iteration that no phase claims, such as bringing results to the processor.",
    "time of this iteration": "Measured wall time of each phase, one after the other.",
    "iteration strip": "One column per iteration: its height is the number of accepted tokens.",
}

SPEED: dict[str, str] = {
    "new tokens": "Committed tokens after the prompt; figures without loops leave out those that repeat the text.",
    "throughput": "New tokens per second of wall time, prefill included unless said otherwise.",
    "ttft": "Time to first token: from the call to the first committed tokens, prefill of both models included.",
    "tpot": "Time per output token after the first: (time of the last token - TTFT) over the tokens after the first.",
    "target pass": "One forward pass of the target; with rollback and rebuild an iteration makes two.",
    "speed-up": "How many times the throughput of plain decoding on the same prompt and machine.",
    "peak memory": "The most memory that was held at once during a call.",
    "loop": "The last 16 tokens were seen before in the output: the model repeats itself, which flatters every "
    "speculative method.",
    "measured": "Read from a clock or a counter while the run was made.",
    "exact": "Computed over all possible draws, without chance.",
    "replayed": "Computed from what a run has stored, without running a model.",
    "estimated": "Computed from a sample or a model of costs, with an error.",
    "live": "The models run at this moment.",
    "recorded": "Decoded earlier by the real models and stored in a file.",
    "quartiles": "The values below which a quarter and three quarters of the repeats lie.",
}

SAMPLING: dict[str, str] = {
    "greedy decoding": "The most likely token is taken at each place; nothing is left to chance.",
    "temperature": "How evenly tokens are drawn: 0 always takes the likeliest, higher values spread further.",
    "top-p": "Only the likeliest tokens that together reach this probability can be drawn.",
    "draft temperature": "The temperature of the draft's distribution, from which a sampled tree is drawn.",
    "seed": "The number that fixes all random draws: the same seed gives the same run.",
    "draw": "A random number of the run, used for a test or to choose a token.",
    "i.i.d. tree": "A tree whose paths are drawn independently of each other, repeats included.",
    "without replacement": "Siblings are drawn one after the other, and none can come twice.",
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

# Other words of the screen for an entry: short forms, panel heads, columns of tables.
ALIASES: dict[str, str] = {
    "attention mask": "tree attention mask",
    "mask": "tree attention mask",
    "kv rows": "kv row",
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
    "drawn how often": "multiplicity",
    "target wants next": "target probability",
    "tests at this place, in order": "acceptance test",
    "rebuild kv": "rebuild",
    "text": "provenance",
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
    "against autoregressive": "speed-up",
    "against hugging face generate": "speed-up",
    "tokens measured": "new tokens",
    "target's probability": "target probability",
    "fold": "folded nodes",
    "root node": "root",
}


ABBREVIATIONS = ("ttft", "tpot", "kv")


def shown_term(term: str) -> str:
    """A term as it is written on the screen: abbreviations in capitals."""
    return " ".join(word.upper() if word in ABBREVIATIONS else word for word in term.split(" "))


def explain_term(term: str) -> str:
    """The sentence of a term or of another word for it, whatever its capitals; empty for a word without an entry."""
    key = " ".join(term.lower().split())
    return TERMS.get(ALIASES.get(key, key), "")
