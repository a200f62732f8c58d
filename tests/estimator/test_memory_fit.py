"""Whether a step fits a device: by both bounds of its need, with the batch of which it is said."""

import pytest

from assay.api import configure
from assay.api.configuration import on_device
from assay.cost.simulation.reserved import Interval
from assay.estimator.device_memory import device_memory
from assay.estimator.estimate import estimate
from assay.estimator.memory_fit import StepBatch, fit_of, fit_within
from assay.hardware import Machine
from assay.report.predictions import fit_words


@pytest.mark.parametrize(("memory", "words"), [(9, "does not fit"), (10, "may fit"), (19, "may fit"), (20, "fits")])
def test_the_verdict_has_both_bounds(memory: int, words: str) -> None:
    assert fit_within(Interval(10, 20), memory).verdict == words


def test_a_step_is_held_against_the_memory_that_torch_sees() -> None:
    asked = configure("gpt2-124m", ("training.batch_size=12",), "gradient_accumulation:micro_batches=3")
    found = estimate(*on_device(asked, "rtx4090"))
    fit, memory = fit_of(found), device_memory(found)
    assert fit is not None
    assert memory is not None
    assert (fit.need, fit.memory_bytes) == (memory.total, 24207 * 2**20)
    assert fit.batch == StepBatch(12, 1024, 3)
    assert fit_words(fit).startswith("fits: ")
    assert fit_words(fit).endswith(" of 23.6 GiB, with 12 sequences of 1,024 tokens, in 3 micro-batches")


def test_a_cpu_has_no_memory_of_its_own() -> None:
    assert fit_of(estimate(configure("demo"), Machine(processor="any", cores=1, memory_bytes=2**34))) is None
