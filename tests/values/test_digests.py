"""Digests of rows: what they depend on, and that they leave no trace in a step."""

import itertools
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from assay.values.digests import RowDigest

IDS = torch.arange(60).view(6, 10)
TARGETS = IDS + 1


def digest(*batches: tuple[torch.Tensor, torch.Tensor]) -> RowDigest:
    found = RowDigest()
    for ids, targets in batches:
        found.add(ids, targets)
    return found


def test_it_does_not_depend_on_how_rows_are_cut() -> None:
    whole = digest((IDS, TARGETS))
    for first, second in itertools.combinations(range(7), 2):
        pieces = [(IDS[start:stop], TARGETS[start:stop]) for start, stop in ((0, first), (first, second), (second, 6))]
        found = digest(*pieces)
        assert (found.value, found.rows) == (whole.value, 6)


def test_rows_of_a_slow_reference_have_the_same() -> None:
    found = RowDigest()
    for ids, targets in zip(IDS, TARGETS, strict=True):
        found.add_text(ids.numpy().tobytes(), targets.numpy().tobytes())
    assert found.value == digest((IDS, TARGETS)).value
    assert found.rows == 6


def test_any_other_token_or_order_has_another() -> None:
    changed = [IDS.clone() for _ in range(IDS.numel())]
    for at, one in enumerate(changed):
        one.view(-1)[at] += 1
    others = [(one, TARGETS) for one in changed] + [(IDS, one) for one in changed]
    others += [(IDS.flip(0), TARGETS.flip(0)), (TARGETS, IDS)]
    assert len({digest((IDS, TARGETS)).value, *(digest(one).value for one in others)}) == len(others) + 1


def test_the_bytes_are_those_of_the_rows_and_not_of_their_storage() -> None:
    assert digest((IDS.T.contiguous().T, TARGETS)).value == digest((IDS, TARGETS)).value


def test_rows_elsewhere_are_counted_and_not_read() -> None:
    found = digest((IDS.to("meta"), TARGETS.to("meta")))
    assert (found.rows, found.held) == (6, False)


class Called(TorchDispatchMode):
    """Notes the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators.append(func)
        return func(*args, **(kwargs or {}))


def test_no_operator_is_called_and_the_storage_stays_torchs() -> None:
    ids, targets = torch.zeros(4, 8, dtype=torch.int64), torch.ones(4, 8, dtype=torch.int64)
    with Called() as called:
        digest((ids, targets))
    assert called.operators == []
    assert ids.untyped_storage().resizable()
