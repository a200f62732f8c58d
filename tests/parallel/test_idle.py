"""Idle shares that are measured on ranks move when the split does, and its proof fails where blocks lie elsewhere."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from assay.config import Spec, validate
from assay.instruments.pipeline_calls import Busy, idle
from assay.optimizations import resolve
from assay.records.trace import Trace
from support.ranks import compute

MODEL = {"n_layer": 8, "n_head": 2, "n_embd": 64, "context_length": 64, "vocab_size": 65}
EQUAL, UNEVEN = "pipeline_parallel", "pipeline_parallel:split=7-1"
STEPS = 3


def run_with(stack: str) -> dict[str, Any]:
    training = {"batch_size": 8, "steps": 2, "warmup_steps": 1}
    return {"model": MODEL, "training": training, "device": "cpu", "ranks": 2, "optimizations": [stack]}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    cases = [{"run": run_with(one), "steps": 2, "dtype": "float32", "watched": STEPS} for one in (EQUAL, UNEVEN)]
    answers = compute(cases, tmp_path_factory.mktemp("ranks"))
    return {stack: answer["ranks"] for stack, answer in zip((EQUAL, UNEVEN), answers, strict=True)}


def test_the_rank_with_one_block_of_eight_idles_and_the_other_does_not(found: Mapping[str, Any]) -> None:
    steps = [[Busy(**rank["busy"][index]) for rank in found[UNEVEN]] for index in range(STEPS)]
    shares = idle(steps, (0, 1))
    # Expected are 0 and 0.85; other programs on the cores narrow the distance.
    assert shares[1].share > shares[0].share


def test_every_forward_and_backward_is_watched_on_equal_stages_too(found: Mapping[str, Any]) -> None:
    steps = [[Busy(**rank["busy"][index]) for rank in found[EQUAL]] for index in range(STEPS)]
    assert set(idle(steps, (0, 1))) == {0, 1}
    assert all(0 < one.busy_seconds <= one.end_seconds - one.begin_seconds for step in steps for one in step)


def test_a_split_that_is_not_the_one_asked_for_is_no_proof_of_it(found: Mapping[str, Any]) -> None:
    for stack, asked in ((EQUAL, UNEVEN), (UNEVEN, EQUAL)):
        technique = resolve(Spec.parse(asked))
        for rank in found[stack]:
            trace = Trace.model_validate_json(json.dumps({**rank["trace"], "operations": []}))
            assert not technique.verify(trace, validate(run_with(asked))).verdict
