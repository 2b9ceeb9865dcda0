"""KV slots, and what runs a model over them: the forward of transformers, a packed one of ours, or CUDA graphs."""
