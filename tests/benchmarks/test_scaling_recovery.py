"""Intervals of laws that are known cover the truth at their nominal rate, 95 %, within four points.

Those of some constants are wider, because a bootstrap also draws what runs of one size may share
(`docs/measured/scaling.md`). They must not be narrower.
"""

from typing import Any

import pytest

from assay.scaling.laws import forms


@pytest.fixture
def benchmark() -> Any:
    import scaling_recovery  # type: ignore[import-not-found]

    return scaling_recovery


@pytest.mark.slow
@pytest.mark.parametrize("name", list(forms()))
def test_intervals_of_known_laws_cover_at_their_nominal_rate(benchmark: Any, name: str) -> None:
    law = benchmark.truth(name)
    shares = benchmark.recovery(law)
    for constant in law.printed:
        if shares[f"{constant} not identified"] < 0.05:
            assert shares[constant] >= 0.91, constant
    for figure in ("the law's loss", "new losses within"):
        assert shares[figure] == pytest.approx(0.95, abs=0.04), figure


def test_one_data_set_has_every_figure(benchmark: Any) -> None:
    shares = benchmark.covered(benchmark.truth("hoffmann"), 0)
    assert {"E", "A", "B", "α", "β", "the law's loss", "new losses within", "new losses beyond"} <= shares.keys()
    assert shares["new losses within"] > 0.8
    assert shares["new losses beyond"] >= shares["new losses beyond, bootstrap"]
