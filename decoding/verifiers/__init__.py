"""Every way to accept tokens from a draft tree, by name."""

from decoding.verifiers.base import Verifier
from decoding.verifiers.greedy import GreedyVerifier

VERIFIERS: dict[str, type[Verifier]] = {"greedy": GreedyVerifier}
