"""The speedrun's own arithmetic: the loss of a whole split, and the table of both sides."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

VOCABULARY = 11


@pytest.fixture
def speedrun() -> Any:
    import speedrun as script  # type: ignore[import-not-found]

    return script


@pytest.mark.parametrize("length", [65, 66, 64 * 3 + 1, 64 * 70 + 13])
def test_each_token_but_the_first_is_a_target_once(speedrun: Any, length: int) -> None:
    draw = torch.Generator().manual_seed(length)
    ids = torch.randint(VOCABULARY, (length,), generator=draw)
    table = torch.randn(VOCABULARY, VOCABULARY, generator=draw, dtype=torch.float64)

    def loss(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """A model that sees one token: its loss does not depend on how a text is cut."""
        return F.cross_entropy(table[inputs].flatten(0, 1), targets.flatten())

    expected = F.cross_entropy(table[ids[:-1]], ids[1:]).item()
    assert speedrun.whole_split(loss, ids) == pytest.approx(expected, rel=1e-9)


def test_the_table_is_that_of_the_record(speedrun: Any) -> None:
    record = Path(__file__).parents[2] / "docs" / "measured" / "speedrun.json"
    written = record.with_suffix(".md").read_text()
    rows = [line for line in speedrun.report(json.loads(record.read_text())).splitlines() if line.startswith("|")]
    assert len(rows) == 8
    assert all(row in written for row in rows)


def test_a_ratio_has_an_interval_over_seeds(speedrun: Any) -> None:
    assert speedrun.mean_ratio([0.5]) == "0.500"
    assert speedrun.mean_ratio([0.2, 0.2, 0.2]) == "0.200 [0.200, 0.200]"


def test_times_are_read_from_what_nanogpt_logs(speedrun: Any) -> None:
    logged = [
        "step 0: train loss 4.2, val loss 4.2",
        "iter 0: loss 4.2, time 1500.50ms, mfu -100.00%",
        "iter 1: loss 4.1, time 30.25ms, mfu 0.01%",
    ]
    assert speedrun._LOGGED.findall("\n".join(logged)) == [("0", "1500.50"), ("1", "30.25")]
