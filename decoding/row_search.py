"""Largest entries of each row of a table: on a CPU in two steps, because PyTorch's own search there is slow."""

from decoding.optional_torch import Tensor, torch

BLOCK = 64
FEWEST_ROWS = 12  # for fewer rows the second step costs more than it saves


def argmax_rows(rows: Tensor) -> Tensor:
    """Index of the largest entry of each row, the first of equals, `[num_rows]`."""
    if not _in_blocks(rows):
        return rows.argmax(-1)
    blocks = rows.unflatten(1, (-1, BLOCK))
    best = blocks.amax(-1).argmax(-1)
    within = blocks[torch.arange(len(rows)), best].argmax(-1)
    return best * BLOCK + within


def topk_rows(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest entries of each row in descending order and their indices, `[num_rows, count]` each.

    They stand in the `count` blocks with the largest maxima, so only those are searched.
    """
    if not _in_blocks(rows) or 2 * count * BLOCK > rows.shape[1]:
        return tuple(rows.topk(count, -1))
    blocks = rows.unflatten(1, (-1, BLOCK))
    best = blocks.amax(-1).topk(count, -1, sorted=False).indices.sort(-1).values  # in order, as the whole row stands
    candidates = blocks.gather(1, best[..., None].expand(-1, -1, BLOCK)).flatten(1)
    values, places = candidates.topk(count, -1)
    return values, best.gather(1, places // BLOCK) * BLOCK + places % BLOCK


def _in_blocks(rows: Tensor) -> bool:
    return (
        rows.device.type == "cpu" and len(rows) >= FEWEST_ROWS and rows.shape[1] % BLOCK == 0 and rows.shape[1] > BLOCK
    )
