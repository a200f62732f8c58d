"""Questions of good sense: what makes an answer right, and that most of them are answered so."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

LEAST = 36
KEPT = {"fits": True, "has": [["fp8", "compile"]], "hasnt": ["tf32"], "hours": [15, 15], "money": [6, 6], "batch": 12}


@pytest.fixture
def script() -> ModuleType:
    """Return the script, which lies beside others in `benchmarks/`."""
    import good_sense  # type: ignore[import-not-found]

    found: ModuleType = good_sense
    return found


def test_there_are_forty_questions_with_answers_and_sources(script: ModuleType) -> None:
    found = script.questions()
    assert len({one["id"] for one in found}) == len(found) == 40
    for one in found:
        assert one["question"].endswith(("?", "."))
        assert one["answer"]
        assert one["source"]
        assert one["expected"].keys() <= KEPT.keys()


@pytest.mark.parametrize(
    ("expected", "fault"),
    [
        ({"fits": False}, ["it fits"]),
        ({"has": [["tf32", "fp8"]]}, ["none of tf32, fp8"]),
        ({"hasnt": ["compile"]}, ["compile is advised"]),
        ({"hours": [16, 30]}, ["hours 10 to 20"]),
        ({"money": [1, 5]}, ["money 5 to 7"]),
        ({"batch": 13}, ["a batch of 12"]),
        (KEPT, []),
    ],
)
def test_each_expectation_can_fail(script: ModuleType, expected: dict[str, Any], fault: list[str]) -> None:
    found = script.Answer(True, ("bf16_mixed", "compile"), (10.0, 20.0), (5.0, 7.0), 12, "bf16_mixed+compile")
    assert script.wrong(expected, found) == fault


def test_answers_of_verbs_are_read(script: ModuleType) -> None:
    best = {"optimizations": "sdpa_attention:backend=flash+tf32", "need_bytes": 3}
    training = {"hours": [1.0, 2.0], "money": None}
    found = script.read({"recommended": best, "budget_bytes": 2, "training": training})
    assert found[:4] == (False, ("sdpa_attention", "tf32"), (1.0, 2.0), None)
    assert script.read({"fit": {"verdict": "may fit"}}).fits is False
    capacity = script.read({"largest": [{"configured_bytes": 1, "value": 9}], "memory_bytes": 1})
    assert (capacity.fits, capacity.batch) == (True, 9)


@pytest.mark.slow
def test_most_questions_are_answered_as_a_practitioner_would(script: ModuleType, tmp_path: Path) -> None:
    faults = {}
    for one in script.questions():
        found = script.asked(one["ask"], tmp_path)
        faults[one["id"]] = script.wrong(one["expected"], found)
        assert not set(found.stack) & set(script.PURE)
        assert not found.stack or found.fits
    right = [name for name, fault in faults.items() if not fault]
    assert len(right) >= LEAST, {name: fault for name, fault in faults.items() if fault}
    assert "1b-rtx4090" in right  # weights in float16 were advised


def test_the_page_has_every_question(script: ModuleType) -> None:
    text = script.PAGE.read_text(encoding="utf-8")
    assert all(one["question"] in text for one in script.questions())
