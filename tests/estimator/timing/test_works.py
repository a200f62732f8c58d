"""Work as sums: that of kernels on a GPU of a datasheet, and a roofline's for measured rates."""

import pytest

from assay import api
from assay.estimator import estimate
from assay.estimator.timing import step_time
from assay.estimator.timing.works import pass_work, update_work
from assay.hardware.devices import absent_machine
from support.advice import RATES

RUN = api.configure("gpt2-124m", ["model.vocab_size=256", "device=cuda"])


def test_the_sums_of_kernels_are_those_of_the_played_step() -> None:
    machine = absent_machine("h200")
    found, rates = estimate(RUN, machine), machine.rates["cuda"]
    passing, updating = pass_work(found.cost, rates), update_work(found.cost, rates)
    assert passing is not None
    whole = passing.plus(updating)
    assert found.step_time is not None
    assert found.step_time.apart == pytest.approx((whole.launching, whole.working))
    assert whole.seconds(rates) == pytest.approx(found.step_time.seconds, rel=0.05)


def test_measured_rates_give_the_roofline() -> None:
    cost, rates = estimate(RUN, absent_machine("h200")).cost, RATES.model_copy(update={"device": "cuda"})
    assert pass_work(cost, rates) == step_time.pass_work(cost, rates)
    assert update_work(cost, rates) == step_time.update_work(cost, rates)


def test_a_dtype_without_a_peak_has_no_work() -> None:
    cost = estimate(api.configure("gpt2-124m", ["device=cuda"], "bf16_mixed"), absent_machine("h200")).cost
    assert pass_work(cost, absent_machine("t4").rates["cuda"]) is None
