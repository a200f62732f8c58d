"""Names of runs: ids, starts of ids, and the last."""

import os
import time

import pytest

from assay.config import Home
from assay.errors import UsageError
from assay.store.lookup import find, run_folders


@pytest.fixture
def three(home: Home) -> Home:
    now = time.time()
    for age, name in ((10, "2026-a"), (30, "2026-ab"), (20, "2027-c")):
        (home.runs / name).mkdir()
        (home.runs / name / "run.json").touch()
        os.utime(home.runs / name / "run.json", (now - age, now - age))
    return home


def test_a_folder_is_a_run_once_it_says_what_was_asked_for(three: Home) -> None:
    (three.runs / "empty").mkdir()
    (three.runs / "file").touch()
    assert [folder.id for folder in run_folders(three)] == ["2026-a", "2026-ab", "2027-c"]


@pytest.mark.parametrize(
    ("name", "expected"), [("2027", "2027-c"), ("2026-ab", "2026-ab"), ("2026-a", "2026-a"), ("last", "2026-a")]
)
def test_found(three: Home, name: str, expected: str) -> None:
    assert find(three, name).id == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("2026", r"start of 2 runs \(2026-a, 2026-ab\)"), ("2027-d", "did you mean '2027-c'"), ("", "there is no run ''")],
)
def test_not_found(three: Home, name: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        find(three, name)


def test_no_runs_at_all(home: Home) -> None:
    with pytest.raises(UsageError, match="there are no runs in"):
        find(home, "last")
