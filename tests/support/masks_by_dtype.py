"""A CPU whose dropout draws other masks in each dtype, as CUDA does."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.values import masks


@contextmanager
def masks_by_dtype(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Context in which a mask depends on the dtype of what is dropped, and value checks know it."""

    def drawn(self: Tensor, p: float = 0.5, *, generator: Any = None) -> Tensor:
        uniform = torch.rand(self.numel(), generator=generator)
        return self.copy_((uniform.roll(self.itemsize) < p).view(self.shape))

    monkeypatch.setattr(masks, "depend_on_dtype", lambda device: True)
    library = torch.library.Library("aten", "IMPL")
    library.impl("bernoulli_.float", drawn, "CPU", allow_override=True)
    try:
        yield
    finally:
        library._destroy()
