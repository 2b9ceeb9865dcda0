"""Traffic between host and device: what goes up waits for nothing, what comes down waits and is counted."""

import numpy as np
import torch
from torch import Tensor


class Transfers:
    """Moves small arrays between the host and one device.

    Attributes:
        device: the device.
        reads: how often the host has waited for the device.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.reads = 0

    def staging(self, like: Tensor) -> Tensor:
        """A host tensor to fill and `upload`; page-locked where the device copies from it by itself."""
        return torch.empty(like.shape, dtype=like.dtype, pin_memory=self.device.type == "cuda")

    def upload(self, staged: Tensor, static: Tensor) -> None:
        """Copy to the device behind the work queued there.

        A new staging tensor is made for every upload: the allocator of page-locked memory gives one away again only
        after the copies from it have been done, so that nothing is overwritten before the device has read it.
        """
        static.copy_(staged, non_blocking=True)

    def read(self, tensor: Tensor) -> np.ndarray:
        """The values on the host; the only way in which a pass on the device makes the host wait."""
        self.reads += 1
        host = self.staging(tensor)
        host.copy_(tensor, non_blocking=True)
        if self.device.type == "cuda":
            # An event, as torch.cuda.set_sync_debug_mode takes waiting for a whole stream for a mistake.
            copied = torch.cuda.Event()
            copied.record(torch.cuda.current_stream(self.device))
            copied.synchronize()
        return host.numpy()
