"""Open a pair as the app does: load it, decode its first tokens, and know what its passes cost."""

from decoding.common.cost_model import CostModel
from decoding.common.interruption import check_wanted
from decoding.costs.measuring import cost_model
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair, load_pair, release
from decoding.models.presets import PairSettings
from decoding.session.session import DecodeSession, Limits, unrecorded

FIRST_TEXT, FIRST_TOKENS = "One day", 6


def open_pair(settings: PairSettings) -> tuple[Pair, CostModel]:
    """A pair that has decoded, and what its passes cost here; one that fails at that does not stay in memory.

    Raises:
        DraftscopeError: why it cannot be used, in one sentence.
    """
    pair = load_pair(settings)
    try:
        check_wanted()
        warm_up(pair)
        return pair, cost_model(pair, unrecorded)
    except BaseException:  # whatever stopped it: nobody holds the pair who could release it
        release(pair)
        raise


def warm_up(pair: Pair) -> None:
    """Decode a few tokens: the first passes after loading are many times slower and would mislead on screen."""
    prompt_ids = pair.vocabulary.encode(FIRST_TEXT)
    list(DecodeSession(pair, METHODS["dynatree"], prompt_ids, limits=Limits(FIRST_TOKENS, ignore_end_of_text=True)))
