"""What ranks send and hold: measured, predicted, and compared."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.config import validate
from assay.cost.work import communications
from assay.estimator import Estimate, estimate
from assay.hardware import Machine
from support.ranks import settled_peaks

MACHINE = Machine(processor="any", cores=4, memory_bytes=2**34)

MODEL = {"n_layer": 2, "n_head": 4, "n_embd": 64, "context_length": 32, "vocab_size": 65}

DEEP = ("fully_sharded", "pipeline_parallel")
"""Blocks are gathered while others run, or one after the other: these have four."""

FAR = {"pipeline_parallel+fully_sharded": 0.01}
"""Largest errors beyond 0.5 %. Here a first stage frees 25 kB of 3 MB before it gathers its first block in backward."""

KINDS: Mapping[str, Mapping[str, Any]] = {
    "many-tokens": {"n_layer": 2, "n_embd": 128, "context_length": 4, "vocab_size": 2001},
    "most-tokens": {"n_embd": 128, "context_length": 4, "vocab_size": 8001},
    "post-norm": {"n_layer": 1, "norm_position": "post"},
}
"""What is highest is then the sum of the tied weight's two gradients, of most tokens even beside copies of gathered
weights; a sum behind a pair, in forward."""


def run_with(stack: str, ranks: int) -> dict[str, Any]:
    training = {"batch_size": 16, "steps": 4, "warmup_steps": 1}
    kind, _, listed = stack.rpartition(" ")
    deep = {"n_layer": 4} if any(one in listed for one in DEEP) else {}
    model = MODEL | deep | KINDS.get(kind, {})
    return {"model": model, "training": training, "device": "cpu", "ranks": ranks, "optimizations": listed.split("+")}


def handed(measured: Mapping[str, Any]) -> Counter[tuple[str, str]]:
    """Bytes that a rank was seen to hand to collectives, by collective and axis."""
    sent: Counter[tuple[str, str]] = Counter()
    for one in measured["trace"]["communications"]:
        sent[one["collective"], one["axis"]] += one["payload_bytes"]
    return sent


def payloads(predicted: Estimate) -> Counter[tuple[str, str]]:
    """The same as the ledger has them."""
    expected: Counter[tuple[str, str]] = Counter()
    for one in communications(predicted.cost):
        expected[one.collective, one.axis] += int(one.payload_bytes * one.count)
    return expected


def case(stack: str, ranks: int) -> dict[str, Any]:
    return {"run": run_with(stack, ranks), "steps": 2, "dtype": "float32", "peaks": True}


def sends_what_was_said(measured: Sequence[Mapping[str, Any]], stack: str) -> None:
    """Of every rank, to the byte."""
    for rank, one in enumerate(measured):
        assert handed(one) == payloads(estimate(validate(run_with(stack, len(measured))), MACHINE, rank))


def holds_what_was_said(measured: Sequence[Mapping[str, Any]], stack: str, place: Path) -> None:
    """Of every rank: between steps and for backward to the byte, at the highest within 0.5 %, or as `FAR` says."""
    ranks = len(measured)
    predicted = [estimate(validate(run_with(stack, ranks)), MACHINE, rank) for rank in range(ranks)]
    for one, said in zip(measured, predicted, strict=True):
        trace = one["trace"]
        assert trace["memory"]["parameter_bytes"] == said.cost.parameter_bytes
        whole = said.cost.gradient_bytes if said.cost.backward.frozen else said.cost.parameter_bytes
        assert trace["memory"]["gradient_bytes"] == whole
        assert trace["memory"]["optimizer_state_bytes"] == said.cost.optimizer_state_bytes
        assert sum(trace["memory"]["saved_bytes"].values()) == said.timeline.saved_bytes
    near = pytest.approx([one.timeline.peak.nbytes for one in predicted], rel=FAR.get(stack, 0.005))
    assert settled_peaks(measured, case(stack, ranks), near, place) == near
