from typing import Any

import pytest

from assay.analysis.metrics import Metric
from assay.errors import UsageError

PLAIN: dict[str, Any] = {
    "name": "parameters",
    "title": "parameters",
    "unit": "count",
    "better": "lower",
    "kind": "exact",
    "meaning": "Parameters of the model.",
    "of": lambda result: result.parameters,
}


def test_it_is_shown_and_not_predicted_unless_it_says_so() -> None:
    metric = Metric(**PLAIN)
    assert metric.shown
    assert not metric.predicted


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"unit": "secs"}, "has unit='secs'; choose bytes or seconds or per_second or nats or count or ratio"),
        ({"better": "less"}, "has better='less'; choose lower or higher"),
        ({"kind": "noisy"}, "has kind='noisy'; choose exact or timed or loss"),
        ({"kind": "timed"}, "is of the kind 'timed' and has no function 'of_block'; define it"),
        ({"of": None}, "is of the kind 'exact' and has no function 'of'; define it"),
        ({"predicted": True}, "has predicted=True, but the estimator does not predict it"),
    ],
)
def test_a_fault_is_one_sentence_with_the_name(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=r"^the metric 'parameters' ") as raised:
        Metric(**{**PLAIN, **change})
    assert says in str(raised.value)
