"""A run's settings of torch end with its test."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def torchs_own_settings() -> Iterator[None]:
    threads, fill = torch.get_num_threads(), torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
