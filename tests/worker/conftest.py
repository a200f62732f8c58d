"""Settings of torch that a run makes end with its test; `forked` has the children of runs forked."""

from collections.abc import Iterator

import pytest
import torch

from support.forked import forked

__all__ = ["forked"]


@pytest.fixture(autouse=True)
def torchs_own_settings() -> Iterator[None]:
    threads, fill = torch.get_num_threads(), torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
