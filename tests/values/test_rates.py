"""The slow schedule is the one that runs use."""

import pytest

from assay.config import TrainingConfig
from assay.training.schedules import schedule
from assay.values.rates import rate


@pytest.mark.parametrize("kind", ["cosine", "constant"])
@pytest.mark.parametrize("decay", [None, 30])
@pytest.mark.parametrize("warmup", [0, 5])
def test_the_two_agree(kind: str, decay: int | None, warmup: int) -> None:
    training = TrainingConfig(steps=50, warmup_steps=warmup, decay_steps=decay, schedule=kind)  # type: ignore[arg-type]
    quick = schedule(training)
    assert [rate(training, step) for step in range(60)] == pytest.approx([quick(step) for step in range(60)], rel=1e-12)
