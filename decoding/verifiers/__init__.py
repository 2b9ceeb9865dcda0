"""All verifiers by name."""

from decoding.verifiers.base import Verifier
from decoding.verifiers.bottom_up import BlockVerifier, TraversalVerifier, TraversalWithoutReplacementVerifier
from decoding.verifiers.greedy import GreedyVerifier
from decoding.verifiers.khisti import KhistiVerifier
from decoding.verifiers.naive import NaiveTreeVerifier, NaiveVerifier, NSSVerifier
from decoding.verifiers.specinfer import SpecInferVerifier, SpecInferWithoutReplacementVerifier
from decoding.verifiers.spectr import SpecTrVerifier

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
