"""All verifiers by name."""

from decoding.verifiers.base import Verifier
from decoding.verifiers.block import BlockVerifier
from decoding.verifiers.greedy import GreedyVerifier
from decoding.verifiers.khisti import KhistiVerifier
from decoding.verifiers.naive import NaiveTreeVerifier, NaiveVerifier
from decoding.verifiers.nss import NSSVerifier
from decoding.verifiers.specinfer import SpecInferVerifier
from decoding.verifiers.specinfer_wor import SpecInferWithoutReplacementVerifier
from decoding.verifiers.spectr import SpecTrVerifier
from decoding.verifiers.traversal import TraversalVerifier, TraversalWithoutReplacementVerifier

VERIFIERS: dict[str, type[Verifier]] = {
    verifier.name: verifier
    for verifier in (
        GreedyVerifier,
        NSSVerifier,
        NaiveVerifier,
        NaiveTreeVerifier,
        SpecTrVerifier,
        SpecInferVerifier,
        SpecInferWithoutReplacementVerifier,
        KhistiVerifier,
        BlockVerifier,
        TraversalVerifier,
        TraversalWithoutReplacementVerifier,
    )
}
