"""Reads of values that nobody computes: what is only reported goes on, what decides stops with its line."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from assay.errors import UsageError
from assay.fake.known_values import HostTensors, Reported, TracedReads, UnreadNumber

HERE = Path(__file__).name


def under_a_trace(read: Callable[[torch.Tensor], object]) -> object:
    """Call a function with a tensor of a trace."""
    with FakeTensorMode(allow_non_fake_inputs=True), HostTensors(), TracedReads(), Reported():
        return read(torch.empty(2**17).sum())


def test_a_number_that_is_only_reported_goes_on() -> None:
    found = under_a_trace(lambda loss: (loss.item() + 1) / 2)
    assert isinstance(found, UnreadNumber)
    assert f"{found:.3f}" == "unread"
    assert str(round(found, 2)) == "unread"


@pytest.mark.parametrize(
    ("read", "by"),
    [
        (lambda loss: loss.item() > 3, "item"),
        (lambda loss: int(loss.item()), "item"),
        (lambda loss: 1 if loss > 3 else 2, "bool"),
        (lambda loss: float(loss), "float"),
        (lambda loss: loss.long().item(), "item"),
        (lambda loss: [loss.long()].index(loss), "bool"),
        (lambda loss: bool((loss > 3).all()), "all"),
        (lambda loss: torch.zeros(4).__setitem__(0, loss.item()), "item"),
    ],
)
def test_a_value_that_decides_stops_with_its_line(read: Callable[[torch.Tensor], object], by: str) -> None:
    with pytest.raises(UsageError, match=rf'{HERE}:\d+ reads a value \("{by}"\)'):
        under_a_trace(read)


@pytest.mark.parametrize(
    ("asked", "value"),
    [
        (lambda loss: torch.isnan(loss) or torch.isinf(loss), False),
        (lambda loss: loss.isfinite().all(), True),
        (lambda loss: torch.isnan(torch.tensor(float("nan"))), True),
    ],
)
def test_a_number_that_nobody_computed_is_finite(asked: Callable[[torch.Tensor], torch.Tensor], value: bool) -> None:
    assert under_a_trace(lambda loss: bool(asked(loss))) is value


def test_small_tensors_of_the_host_keep_their_values() -> None:
    assert under_a_trace(lambda _: [int(one) for one in torch.arange(4)]) == [0, 1, 2, 3]
    assert under_a_trace(lambda _: bool(torch.rand([]) < 0)) is False
    counted = under_a_trace(lambda _: torch.zeros(3).add_(2).tolist())
    assert counted == [2.0, 2.0, 2.0]


def test_a_host_tensor_that_is_to_take_a_value_stops() -> None:
    with pytest.raises(UsageError, match=rf"{HERE}:\d+ writes values of the device into a tensor of the host"):
        under_a_trace(lambda loss: torch.zeros([]).copy_(loss))


def test_the_loss_scaler_of_torch_reads_that_nothing_overflowed() -> None:
    with FakeTensorMode(), TracedReads(), Reported():
        weight = torch.nn.Parameter(torch.zeros(8))
        scaler = torch.amp.GradScaler("cpu")
        optimizer = torch.optim.SGD([weight], lr=1.0)
        scaler.scale(weight.sum()).backward()
        before = weight._version
        scaler.step(optimizer)
        assert weight._version > before


@pytest.mark.parametrize(
    ("made", "value"),
    [
        (lambda: (torch.arange(8, device="cuda") == 8).any(), False),
        (lambda: (torch.arange(8, device="cuda").unsqueeze(0).diff() == 1).all(), True),
        (lambda: torch.ones(3, device="cuda").mul_(2).sum() == 6, True),
        (lambda: torch.rand(3, device="cuda").sum() < 9, None),
        (lambda: torch.empty(3, device="cuda").sum() < 9, None),
        (lambda: torch.zeros(2, device="cuda").add_(torch.rand(2, device="cuda")).sum() < 9, None),
        (lambda: spoilt_view(), None),
    ],
)
def test_values_of_the_device_are_known_that_follow_from_numbers(
    made: Callable[[], torch.Tensor], value: bool | None
) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True), HostTensors(), TracedReads(), Reported():
        if value is None:
            with pytest.raises(UsageError, match="reads a value"):
                bool(made())
        else:
            assert bool(made()) is value


def spoilt_view() -> torch.Tensor:
    """A tensor of known numbers, into whose view a random one has been written."""
    whole = torch.zeros(4, device="cuda")
    whole.view(2, 2).add_(torch.rand(2, 2, device="cuda"))
    return whole.sum() < 9
