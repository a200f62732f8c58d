"""Spans of collectives: what overlaps counts once, and a step without any has none."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.instruments.collectives.spans import travel, union_length


def test_overlapping_kernels_count_once() -> None:
    assert union_length([(0.0, 2.0), (1.0, 3.0), (1.5, 1.6), (5.0, 6.0)]) == pytest.approx(4.0)
    assert union_length([]) == 0.0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: tuple(sorted(pair)))))
def test_it_is_the_length_of_the_union(spans: list[tuple[int, int]]) -> None:
    touched = {moment for start, end in spans for moment in range(start, end)}
    assert union_length([(float(start), float(end)) for start, end in spans]) == len(touched)


def test_on_one_device_nothing_is_under_way() -> None:
    found = travel(torch.device("cpu"), lambda: None)
    assert (found.under_way_seconds, found.share) == (0.0, 0.0)
    assert found.step_seconds > 0
    assert found.spans == ()
