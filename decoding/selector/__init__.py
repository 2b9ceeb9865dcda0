"""The neural selector of delayed expansion: which (K, L1, L2) to draft at a root, from what both models say there.

The action depends on the text before the tree alone, never on a drafted token below the root, so that verification
stays lossless whatever the selector says.
"""
