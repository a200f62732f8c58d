"""The guard of what a reader is shown: measured figures are masked, and what differs is named."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from support.docs import program


@pytest.fixture(scope="module")
def guard() -> Any:
    return program("guard")


def test_figures_that_are_measured_are_masked_and_words_are_not(guard: Any) -> None:
    before = guard._masked("step 19.0k tokens/s, 3.1 ms   of run 20261127-133653-8dadc2-458a")
    assert before == guard._masked("step 183 tokens/s, 12.25 s  of run 20261127-140001-8dadc3-11fa")
    assert before != guard._masked("step 183 rows/s, 12.25 s  of run 20261127-140001-8dadc3-11fa")


def test_the_shape_of_a_value_has_its_keys_and_kinds(guard: Any) -> None:
    one = guard._shape({"a": 1, "b": [{"c": "x"}, {"c": "y"}]})
    assert one == guard._shape({"a": 2, "b": [{"c": "z"}]})
    assert one != guard._shape({"a": 2.0, "b": [{"c": "z"}]})


def test_a_text_that_differs_or_is_missing_is_named_with_its_difference(
    guard: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    file = tmp_path / "before.gz"
    file.write_bytes(gzip.compress(json.dumps({"same": "1", "other": "left\nright", "gone": "2"}).encode()))
    monkeypatch.setattr(guard, "everything", lambda: {"same": "1", "other": "left\nwrong"})
    assert guard.main(["--check", str(file)]) == 1
    said = capsys.readouterr().out
    assert "other\n--- before\n+++ after\n@@ -2 +2 @@\n-right\n+wrong" in said
    assert "\ngone\n" in said
    assert "\nsame\n" not in said
    assert guard.main([str(file)]) == 0
    assert guard.main(["--check", str(file)]) == 0
