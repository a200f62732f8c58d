"""Simulated families through the analysis: a small number here, and the whole tables in the slow suite."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.analysis.comparison import analyse
from assay.analysis.effects import Verdict
from support.comparisons import FACTORS, TREATMENTS, record

NOTHING = dict.fromkeys(FACTORS, (1.0, 1.0, 1.0, 0.0))


@pytest.fixture
def simulated() -> Any:
    import validity_simulated  # type: ignore[import-not-found]

    return validity_simulated


@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize("offset", [0.0, 0.03])
def test_families_without_an_effect_seldom_differ(simulated: Any, correlation: float, offset: float) -> None:
    plan, families = simulated.PLANS[1], 3000
    values = simulated.figures(plan, families, offset, correlation, np.random.default_rng(2))
    share, _ = simulated.share_that_differs(plan, values)
    assert 0.02 < share < 0.05 + 3 * (0.05 * 0.95 / families) ** 0.5


def test_whole_comparisons_without_an_effect_seldom_differ() -> None:
    """From records to verdicts, with processes that deviate by 2 %; blocks alone would say nearly always 'differs'."""
    families = 100
    differing = 0
    for at in range(families):
        made = record(seeds=3, treatments=TREATMENTS[:3], factors=NOTHING, noise=0.002 + 1e-9 * at, between=0.02)
        differing += any(row.verdicts["step_seconds"] is Verdict.DIFFERS for row in analyse(made).rows)
    assert differing <= 13  # 5 %, and more than three standard errors of it


@pytest.mark.slow
def test_no_share_of_the_table_is_above_five_percent(simulated: Any) -> None:
    families = 10_000
    for row in simulated.false_positives(families):
        assert row["share"] < 0.05 + 3 * (0.05 * 0.95 / families) ** 0.5, row


@pytest.mark.slow
def test_a_larger_change_is_told_more_often(simulated: Any) -> None:
    shares: dict[tuple[str, float], list[float]] = {}
    for row in simulated.power(4000):
        shares.setdefault((row["plan"], row["offset"]), []).append(row["share"])
    assert all(told[0] < told[-1] and told[-1] > 0.9 for told in shares.values())


def test_rows_are_kept_as_they_come_and_the_page_says_what_is_there(tmp_path: Path) -> None:
    import validity  # type: ignore[import-not-found]

    out = tmp_path / "found.json"
    when = {
        "created": "2026-11-22T12:00:00+00:00",
        "device": "some processor",
        "torch": "2",
        "rounds": 5,
        "disturbed": 1,
    }
    when |= {"rounds": 5, "disturbed": 1}
    pairs = iter([0.01, -0.02, 0.015])
    rows = validity.read(out)
    measure = lambda home: {**when, "log_ratio": next(pairs), "blocks": [[0.0, 0.01, 0.02], [0.0, 0.02, 0.01]]}  # noqa: E731
    validity.repeat(2, "pairs", measure, rows, out)
    validity.repeat(1, "pairs", measure, validity.read(out), out)
    assert [row["log_ratio"] for row in json.loads(out.read_bytes())["pairs"]] == [0.01, -0.02, 0.015]
    text = out.with_suffix(".md").read_text()
    assert "3 pairs of processes that took turns (some processor; torch 2; 2026-11-22)" in text
    assert "| rounds that others disturbed | 3 of 15 |" in text
    assert "Simulated" not in text


def test_the_published_page_is_that_of_its_rows() -> None:
    import validity

    rows = validity.read(validity.DATA)
    assert validity.DATA.with_suffix(".md").read_text() == validity.page(rows)
