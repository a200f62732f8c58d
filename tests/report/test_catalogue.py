"""Yes only for a change for the better that is more than noise; what did not run says why."""

import pytest

from assay.analysis.catalogue import CatalogueEntry, Change
from assay.analysis.effects import Verdict
from assay.records.status import Status
from assay.report.catalogue import NOT_YET, TITLES, card_lines, heading, table

ENTRY = CatalogueEntry(
    optimization="one",
    treatment="one",
    configuration="demo",
    device="a device",
    torch="2.13.0",
    date="2026-11-21",
    status=Status.DONE,
    proven=True,
    evidence="3 of 3",
    tensors_peak_bytes=1000,
    predicted_peak_bytes=990,
    saved_bytes=500,
    predicted_saved_bytes=500,
)


def cells(metric: str, change: float, verdict: Verdict) -> dict[str, str]:
    interval = (change - 0.01, change + 0.01)
    changed = Change(change=change, interval=interval, predicted=None, verdict=verdict)
    (row,) = table(["one"], {"one": ENTRY.model_copy(update={"changes": {metric: changed}})})
    return dict(zip(TITLES, row, strict=True))


@pytest.mark.parametrize(
    ("metric", "title", "change", "answer"),
    [
        ("tokens_per_second", "speed", 0.2, "yes, +20.0 % [+19.0, +21.0]"),
        ("tokens_per_second", "speed", -0.2, "no, −20.0 % [−21.0, −19.0]"),
        ("tensors_peak_bytes", "memory", -0.2, "yes, −20.0 % [−21.0, −19.0]"),
        ("tensors_peak_bytes", "memory", 0.2, "no, +20.0 % [+19.0, +21.0]"),
    ],
)
def test_it_helps_where_more_is_faster_and_less_is_smaller(metric: str, title: str, change: float, answer: str) -> None:
    assert cells(metric, change, Verdict.DIFFERS)[title] == answer


@pytest.mark.parametrize("change", [0.2, -0.2])
def test_noise_neither_helps_nor_harms(change: float) -> None:
    said = cells("tokens_per_second", change, Verdict.NOT_DISTINGUISHABLE)["speed"]
    assert said.startswith("not distinguishable")


def test_an_entry_that_did_not_run_says_why() -> None:
    failed = ENTRY.model_copy(update={"status": Status.UNAVAILABLE, "proven": None, "reason": "it needs a GPU"})
    rows = table(["one", "two"], {"one": failed})
    assert [row[-1] for row in rows] == ["unavailable: it needs a GPU", NOT_YET]
    assert card_lines([failed]) == [("not run on", f"a device, torch 2.13.0, 2026-11-21: {rows[0][-1]}")]
    assert card_lines([]) == [("proof", NOT_YET)]


def test_a_card_holds_the_prediction_against_the_measurement() -> None:
    (place, proof), (_, said) = card_lines([ENTRY])
    assert (place, proof) == ("proven on", "a device, torch 2.13.0, 2026-11-21: 3 of 3")
    assert "tensors' peak 1000 B, predicted 990 B (off by −1.00 %)" in said
    assert "saved for backward 500 B, predicted 500 B (exactly)" in said
    assert card_lines([ENTRY.model_copy(update={"proven": False})])[0][0] == "not proven on"
    assert card_lines([ENTRY.model_copy(update={"flags": ("too equal",)})])[-1] == ("caution", "too equal")


def test_the_heading_says_where_and_when() -> None:
    later = ENTRY.model_copy(update={"date": "2026-11-22"})
    assert heading("a device", [ENTRY]) == "a device; torch 2.13.0; 2026-11-21"
    assert heading("a device", [ENTRY, later]) == "a device; torch 2.13.0; 2026-11-21 to 2026-11-22"
