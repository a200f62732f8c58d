"""A copy of a tensor from host memory to the step's device, for which the host does not wait.

A GPU copies from pageable memory through a buffer of the driver. The host then waits until all earlier work is done.
From pinned memory the device copies by itself, in the order of its queue. Torch keeps the pinned block until the copy
is done, and uses it again for the next one.
"""

import torch
from torch import Tensor


def copied_to(device: torch.device, tensor: Tensor) -> Tensor:
    """Return the tensor on `device`; itself if it is there already."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
