"""What a method's drafter has to know of a pair, measured when it is first asked for and kept."""

from dataclasses import dataclass

from decoding.common.cost_model import CostModel
from decoding.costs.calibration import calibrated, calibrated_odds
from decoding.costs.chooser import Chooser, load_chooser
from decoding.costs.measuring import Decoder, cost_model
from decoding.models.pair import Pair
from decoding.sampling.sampling import Sampling


@dataclass(frozen=True)
class MeasuredPair:
    """A pair on this machine at some sampling settings, as `Method.prepared` takes it.

    Attributes:
        decoder: decodes, to measure what an iteration takes beside its passes.
    """

    pair: Pair
    sampling: Sampling
    decoder: Decoder

    def costs(self) -> CostModel:
        """What passes cost."""
        return cost_model(self.pair, self.decoder)

    def acceptance(self) -> tuple[float, ...]:
        """How often each child in draw order is accepted, `[ranks]`."""
        return calibrated(self.pair, self.sampling)

    def odds(self, ranks: int) -> tuple[float, ...]:
        """How far the odds of acceptance are from those that the draft gives, `[ranks]`."""
        return calibrated_odds(self.pair, self.sampling, ranks)

    def chooser(self, name: str, known: Chooser | None) -> Chooser:
        """The trained selector of this name; the known one where it was loaded for this pair."""
        fits = known is not None and known.fits(self.pair)
        return known if fits else load_chooser(name, self.pair, self.decoder)
