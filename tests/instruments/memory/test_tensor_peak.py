"""The profiler's events are read as its tree; its list, which takes ten times as long, is never made."""

import warnings

import pytest
import torch
from torch.autograd import profiler

from assay.instruments.memory.tensor_peak import event_tree, tensor_peak


def test_no_list_of_events_is_made_and_no_warning_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(*given: object) -> None:
        raise AssertionError("torch makes its list of events")

    monkeypatch.setattr(profiler.profile, "_parse_kineto_results", listed)
    layer, rows = torch.nn.Linear(8, 4), torch.ones(2, 8)

    def work() -> None:
        layer(rows)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert [one.name for one in event_tree(work)] == ["aten::linear"]
            assert tensor_peak(work, "cpu").above_start_bytes == 2 * 4 * 4
