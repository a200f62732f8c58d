from typing import Any

import pytest

from assay.analysis.comparison import analyse
from assay.analysis.row import Limit, limits
from assay.records.prediction import Predicted
from assay.records.ranks import RankResult
from assay.records.status import Status
from support.comparisons import TREATMENTS, record

SLOW = Predicted(tensors_peak_bytes=1, step_seconds=0.001)
COMMUNICATING = RankResult(rank=0, place={}, profiled_step_seconds=1.0, communication_seconds=0.5)


def limit(available: int = 20 * 10**9, **changes: Any) -> Limit:
    whole = record(seeds=3, treatments=TREATMENTS[:1], changes={TREATMENTS[0]: changes})
    protocol = whole.protocol.model_copy(update={"available_bytes": available})
    return limits(analyse(whole.model_copy(update={"protocol": protocol})))[1].limit


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "compute"),
        ({"predicted": SLOW}, "not known"),
        ({"predicted": None}, "not known"),
        ({"data_wait_share": 0.2}, "data"),
        ({"data_wait_share": 0.05, "predicted": SLOW}, "not known"),
        ({"ranks": (COMMUNICATING,)}, "communication"),
        ({"status": Status.OUT_OF_MEMORY}, "memory"),
        ({"available": 270_000_000}, "memory"),
    ],
)
def test_the_first_share_at_its_bound_names_the_limit(changes: dict[str, Any], expected: str) -> None:
    assert limit(**changes) == expected


@pytest.mark.parametrize(
    ("predicted", "seconds"),
    [
        (Predicted(step_seconds=1.0), 1.0),  # a record of before, whose step time is a roofline
        (Predicted(step_seconds=1.0, step_seconds_margin=0.1, roofline_seconds=0.25), 0.25),
        (Predicted(step_seconds=1.0, step_seconds_margin=0.1), None),
        (Predicted(), None),
    ],
)
def test_a_step_time_from_timed_steps_says_nothing_of_what_binds(predicted: Predicted, seconds: float | None) -> None:
    assert predicted.work_seconds == seconds
