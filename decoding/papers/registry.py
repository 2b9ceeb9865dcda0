"""Every table and figure that can be run again here."""

from decoding.papers import delayed, dynatree, dynatree_pruned, dyspec, salf
from decoding.papers.exhibit import Exhibit

EXHIBITS: tuple[Exhibit, ...] = (
    *dynatree.EXHIBITS,
    *dynatree_pruned.EXHIBITS,
    *dyspec.EXHIBITS,
    *delayed.EXHIBITS,
    *salf.EXHIBITS,
)
