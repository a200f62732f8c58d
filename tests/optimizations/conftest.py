"""For every test that compiles: the compiler forgets what it made, since it keeps few versions of a function.

An optimizer of torchao's compiles its update, half a minute a test: it runs as it is written, but where that is tested.
"""

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
def updates_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from assay.optimizations.adamw_8bit import step as eight_bit

    monkeypatch.setattr(eight_bit, "_as_written", lambda: torch.compiler.set_stance("force_eager"))
