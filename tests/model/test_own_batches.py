"""Batches of a user's own: equal arguments give equal rows, and what is no batch is refused with a sentence."""

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.config import validate
from assay.config.run import OwnRows, ResolvedRun
from assay.errors import UsageError
from assay.model.own_batches import OwnBatches
from assay.optimizations import resolve_run

ROWS = 6


def drawn(step: int, seed: int, rows: int) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, 3), torch.randint(9, (rows, 2))


def source(
    make: Callable[..., Any] = drawn,
    held_out: Callable[[int], Iterable[Any]] | None = None,
    known: OwnRows | None = None,
    seed: int = 5,
) -> OwnBatches:
    run: ResolvedRun = resolve_run(validate({"seed": seed, "training": {"batch_size": ROWS}}))
    return OwnBatches("mine.py:build", make, held_out, run.model_copy(update={"own_rows": known}))


def test_a_batch_is_a_function_of_seed_and_step_whatever_was_drawn_before() -> None:
    torch.manual_seed(1)
    first = source().at(7)
    state = torch.get_rng_state()
    again = source().at(7)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, first, again))
    for other in (source().at(8), source(seed=6).at(7)):
        assert not torch.equal(first[0], other[0])


def test_shares_are_every_nth_row_and_together_the_batch() -> None:
    inputs, targets = source().at(3)
    for count in (1, 2, 3):
        for index in range(count):
            some, of_them = source().at(3, (index, count))
            assert torch.equal(some, inputs[index::count])
            assert torch.equal(of_them, targets[index::count])
    with pytest.raises(UsageError, match="6 rows cannot be cut into 4"):
        source().at(0, (0, 4))


def test_a_model_that_writes_into_its_inputs_leaves_the_data_alone() -> None:
    data = torch.zeros(ROWS, 3)
    inputs, _ = source(lambda step, seed, rows: (data, torch.zeros(rows))).at(0)
    inputs += 1
    assert not data.any()


def test_facts_of_the_rows_are_found() -> None:
    assert source().checked() == OwnRows(targets=2, validation=False)
    assert source(held_out=lambda rows: [drawn(0, 0, 4)]).checked() == OwnRows(targets=2, validation=True)
    nans = source(lambda step, seed, rows: (torch.full((rows,), torch.nan), torch.zeros(rows)))
    assert nans.checked().targets == 1


def test_validation_repeats_itself_also_where_it_draws_while_it_is_read() -> None:
    def held_out(rows: int) -> Iterable[tuple[Tensor, Tensor]]:
        for _ in range(3):
            yield drawn(0, 0, rows)

    one = source(held_out=held_out)
    first = [inputs.clone() for inputs, _ in one.validation()]
    again = []
    for inputs, _ in one.validation():
        torch.randn(4)  # dropout of a model, or anything else between two batches
        again.append(inputs)
    assert len(first) == 3
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[0], first[1])
    assert list(source().validation()) == []


def test_conjugate_rows_arrive_with_their_values() -> None:
    rows = torch.full((ROWS,), 1 + 2j)
    inputs, _ = source(lambda step, seed, rows_: (rows.conj(), torch.zeros(rows_))).at(0)
    assert torch.equal(inputs, torch.full((ROWS,), 1 - 2j))


def test_held_out_batches_that_change_after_the_first_are_refused_at_the_second_reading() -> None:
    def held_out(rows: int) -> list[tuple[Tensor, Tensor]]:
        return [(torch.zeros(2), torch.zeros(2)), (torch.full((2,), random.random()), torch.zeros(2))]

    one = source(held_out=held_out)
    assert len(list(one.validation())) == 2
    with pytest.raises(UsageError, match="other batches at each call"):
        list(one.validation())


def test_held_out_batches_do_not_end_at_one_that_is_none() -> None:
    good = (torch.zeros(2), torch.zeros(2))
    with pytest.raises(UsageError, match="a NoneType instead of a pair"):
        list(source(held_out=lambda rows: [good, None, good]).validation())


def test_an_iterator_that_is_used_up_is_no_validation() -> None:
    once = iter([(torch.zeros(2), torch.zeros(2))] * 3)
    with pytest.raises(UsageError, match="returned one iterator twice"):
        source(held_out=lambda rows: once).checked()


FAULTS: dict[str, tuple[Callable[..., Any], str]] = {
    "no pair": (lambda step, seed, rows: torch.zeros(rows), "returned a Tensor instead of a pair"),
    "three": (lambda step, seed, rows: (1, 2, 3), "instead of a pair"),
    "no tensor": (lambda step, seed, rows: (torch.zeros(rows), [0] * rows), "targets of batches.* are a list"),
    "elsewhere": (lambda step, seed, rows: (torch.zeros(rows, device="meta"), torch.zeros(rows)), "are on meta"),
    "scalar": (lambda step, seed, rows: (torch.zeros(rows), torch.zeros(())), "targets of .* have no rows"),
    "few rows": (lambda step, seed, rows: (torch.zeros(rows - 1), torch.zeros(rows - 1)), "5 rows of inputs instead"),
    "unequal": (lambda step, seed, rows: (torch.zeros(rows), torch.zeros(2)), "6 rows of inputs and 2 of targets"),
    "no targets": (lambda step, seed, rows: (torch.zeros(rows), torch.zeros(rows, 0)), "returned no targets"),
    "bfloat16": (lambda step, seed, rows: (torch.zeros(rows, dtype=torch.bfloat16), torch.zeros(rows)), "bfloat16"),
    "float8": (
        lambda step, seed, rows: (torch.zeros(rows).to(torch.float8_e5m2), torch.zeros(rows)),
        "are float8_e5m2",
    ),
    "quantized": (
        lambda step, seed, rows: (torch.quantize_per_tensor(torch.zeros(rows), 1.0, 0, torch.qint8), torch.zeros(rows)),
        "inputs of .* are qint8",
    ),
    "error": (lambda step, seed, rows: 1 / 0, "failed: ZeroDivisionError"),
    "other state": (lambda step, seed, rows: (torch.full((rows,), random.random()), torch.zeros(rows)), "different"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_value_that_is_no_batch_is_refused(name: str) -> None:
    make, says = FAULTS[name]
    with pytest.raises(UsageError, match=says):
        source(make).checked()


def test_another_number_of_targets_in_a_later_step_is_refused() -> None:
    known = OwnRows(targets=2, validation=False)
    growing = source(lambda step, seed, rows: (torch.zeros(rows), torch.zeros(rows, 2 + step)), known=known)
    growing.at(0)
    with pytest.raises(UsageError, match="18 targets; step 0 has 12"):
        growing.at(1)


@pytest.mark.parametrize(
    ("held_out", "says"),
    [
        (lambda rows: [], "yields no batch"),
        (lambda rows: 3, "returned a int instead of an iterable"),
        (lambda rows: [(torch.full((2,), random.random()), torch.zeros(2))], "other batches at each call"),
        (lambda rows: [torch.zeros(2)], "instead of a pair"),
    ],
)
def test_a_value_that_is_no_validation_is_refused(held_out: Callable[[int], Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        source(held_out=held_out).checked()
