"""Tree speculative decoding, one iteration at a time.

Importing this package loads neither torch nor transformers, so that a recorded trace opens without them.
"""
