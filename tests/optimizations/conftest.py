"""For every test that compiles: the compiler forgets what it made, since it keeps few versions of a function."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _compiler_forgets(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if request.node.get_closest_marker("slow") and "torch._dynamo" in sys.modules:
        import torch

        torch.compiler.reset()


@pytest.fixture(autouse=True)
def _updates_as_written(updates_as_written: None) -> None:
    """Every update, unless a test undoes its patches."""
