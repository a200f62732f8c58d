"""An optimizer's own learning rate has the shape of the run's schedule."""

import pytest
import torch

from assay.config import Spec, TrainingConfig
from assay.optimizations import optimizations_of
from assay.optimizers.rates import at_rate
from assay.training.build import baseline
from support.random_data import RandomData
from support.runs import run_with


def test_warm_up_cosine_and_minimum_are_the_runs_times_a_factor() -> None:
    run = run_with(Spec(name="sgd", fields={"learning_rate": 0.05}))
    program = baseline(run, RandomData(run), torch.device("cpu"))  # type: ignore[arg-type]
    (sgd,) = optimizations_of(run)
    own = sgd.apply(program, run)
    rates = [program.schedule(step) for step in range(8)]
    assert max(rates) == run.training.learning_rate
    assert [own.schedule(step) for step in range(8)] == pytest.approx([50 * rate for rate in rates], rel=1e-12)


def test_the_decay_of_a_step_stays() -> None:
    plain = TrainingConfig(learning_rate=1e-3, min_learning_rate=1e-4, weight_decay=0.1)
    own = at_rate(plain, 1e-4)
    assert (own.learning_rate, own.min_learning_rate, own.weight_decay) == pytest.approx((1e-4, 1e-5, 1.0))
