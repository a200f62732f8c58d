"""Advice names what was measured on a like GPU, where no prediction tells it."""

import pytest

from assay.api.configuration import on_device
from assay.config.run import Spec
from assay.optimizations import resolve
from support.runs import run_with


@pytest.mark.parametrize(("device", "known"), [("h200", True), ("h100", True), ("a100", False)])
def test_gains_are_those_of_a_hopper(device: str, known: bool) -> None:
    run, machine = on_device(run_with(), device)
    for name in ("sdpa_attention", "pinned_prefetch"):
        assert bool(resolve(Spec(name=name)).measured_gain(run, machine)) is known
    assert not resolve(Spec(name="sdpa_attention", fields={"backend": "flash"})).measured_gain(run, machine)
