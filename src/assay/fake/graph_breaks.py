"""Compiled code in a gate: its memory is that of the eager code, and its graph breaks are counted on fake tensors.

Compiled code shows no operators to a ledger, and its memory hangs on the compiler. So `torch.compile` returns what it
is given while a step is followed. To count breaks, dynamo then captures the step anew with a backend that compiles
nothing. Modes that only know values declare themselves a part of the infrastructure, or dynamo would capture nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from assay.fake.cuda_functions import apply_anew
from assay.fake.known_values import HostStep, StoppedTrace, TracedReads
from assay.fake.traced_step import FakeMode
from assay.step.compiled import graph_breaks

_STEPS = 2
"""Steps after which all code has been captured."""


@contextmanager
def eager_code() -> Iterator[list[Any]]:
    """Context in which `torch.compile` compiles nothing. What it was given is added to the list."""
    given: list[Any] = []

    def kept(model: Any = None, **options: Any) -> Any:
        if model is None:
            return partial(kept, **options)
        given.append(model)
        return model

    with patch.object(torch, "compile", kept):
        yield given


def breaks_on_cpu(make: Callable[[], Callable[[], Any]]) -> int:
    """Return the number of graph breaks of a step; `make` returns the function that trains once."""
    compile_for_real = torch.compile

    def captured(model: Any = None, **options: Any) -> Any:
        left = {name: one for name, one in options.items() if name in ("fullgraph", "dynamic")}
        return partial(captured, **options) if model is None else compile_for_real(model, backend="eager", **left)

    with ExitStack() as entered:
        entered.enter_context(patch.object(torch, "compile", captured))
        entered.enter_context(patch.object(nn.Module, "_apply", apply_anew))
        for mode in (FakeMode(allow_non_fake_inputs=True), _Values(), _Reads()):  # type: ignore[no-untyped-call]
            entered.enter_context(mode)
        with suppress(StoppedTrace):  # a loss is read where the step ends
            call = make()
            for _ in range(_STEPS):
                call()
    return graph_breaks()


class _Values(HostStep):  # type: ignore[no-untyped-call]
    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return True, so that dynamo captures under this mode."""
        return True


class _Reads(TracedReads):  # type: ignore[no-untyped-call]
    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return True, so that dynamo captures under this mode."""
        return True
