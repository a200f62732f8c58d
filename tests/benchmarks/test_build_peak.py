"""The script that measures a build finds one weight on the host where ours has one, and all where all were made."""

from pathlib import Path
from typing import Any

import pytest

from assay.config import load
from assay.data import open_prepared
from assay.data.random_tokens import write_random
from assay.units import format_bytes


@pytest.mark.parametrize("tied", ["true", "false"])
def test_a_build_for_another_device_has_one_weight_on_the_host(tmp_path: Path, tied: str) -> None:
    import build_peak  # type: ignore[import-not-found]

    overrides = ("model.n_layer=2", "model.n_embd=32", "model.context_length=8", "model.vocab_size=61")
    run: Any = load("demo", [*overrides, f"model.tie_embeddings={tied}"])
    data = open_prepared(write_random(tmp_path, 61, 100))
    row = build_peak.measured("tiny", run, data)
    assert len(row) == len(build_peak.COLUMNS)
    projection = 61 * 32 * 4
    blocks = 2 * (12 * 32 * 32 + 2 * 32) * 4 + 32 * 4
    weights = blocks + 8 * 32 * 4 + projection * (1 if tied == "true" else 2)
    assert row[1] == format_bytes(weights)
    assert row[4] == row[2] == format_bytes(4 * 32 * 32 * 4)
    assert row[3] == format_bytes(weights + (projection if tied == "true" else 0))
