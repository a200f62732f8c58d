"""The slow rule of a step's rows, against the batches that are trained."""

from typing import cast

import numpy as np
import pytest

from assay.data import Batches, Prepared
from assay.values.texts import texts_of_step
from support.random_data import RandomData
from support.runs import tiny


@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1])
@pytest.mark.parametrize("divisor", [1, 2, 4])
def test_the_rows_are_those_that_are_trained(seed: int, divisor: int) -> None:
    run = tiny().model_copy(update={"seed": seed})
    data = RandomData(run)
    batches = Batches(data.train, seed, run.training.batch_size, run.model.context_length)  # type: ignore[arg-type]
    for step in (0, 1, 63, 10**6):
        texts = texts_of_step(step, run, cast(Prepared, data), divisor)
        ids, targets = batches.at(step, (0, divisor))
        assert np.array_equal([text[:-1] for text in texts], ids)
        assert np.array_equal([text[1:] for text in texts], targets)
