from pathlib import Path

import pytest

from assay.config import Home
from assay.errors import UsageError
from assay.studies.record import new_id, read, save

from .synthetic import record


def test_a_record_is_read_as_it_was_saved(tmp_path: Path) -> None:
    made = record()
    path = save(made, Home(tmp_path))
    assert path == tmp_path / "reports" / made.id / "comparison.json"
    assert read(made.id, Home(tmp_path)) == made


def test_a_loss_that_was_not_finite_is_read_as_missing(tmp_path: Path) -> None:
    made = record()
    first, *rest = made.cells
    diverged = first.model_copy(
        update={"curve": first.curve.model_copy(update={"train_loss": (2.0, float("nan"), float("inf"))})}
    )
    save(made.model_copy(update={"cells": (diverged, *rest)}), Home(tmp_path))
    assert read(made.id, Home(tmp_path)).cells[0].curve.train_loss == (2.0, None, None)


def test_a_missing_or_damaged_record_is_one_sentence(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with pytest.raises(UsageError, match="there is no comparison"):
        read("20261121-000000-0000", home)
    save(record(), home).write_text('{"id": 1')
    with pytest.raises(UsageError, match="cannot be read"):
        read(record().id, home)


def test_ids_do_not_repeat() -> None:
    assert len({new_id() for _ in range(50)}) > 45
