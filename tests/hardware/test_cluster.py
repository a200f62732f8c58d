"""Datasheets of machines that are not here: figures hang together, and an unknown name is a sentence."""

import pytest

from assay.errors import UsageError
from assay.hardware.cluster import DATASHEETS, cluster


@pytest.mark.parametrize("name", list(DATASHEETS))
def test_a_datasheet_hangs_together(name: str) -> None:
    sheet = DATASHEETS[name]
    assert 0.5 < sheet.products_flops / sheet.peak_flops < 0.75
    assert sheet.inner.bandwidth_bytes > 4 * sheet.outer.bandwidth_bytes
    assert sheet.accelerator.compute_capability is not None
    assert name.upper() in sheet.accelerator.name
    assert name.upper() in sheet.inner.name
    assert name.upper() in sheet.source


def test_published_peaks() -> None:
    """Dense, 16 bits: 312 or 989 TFLOP/s; memory is what a program sees."""
    found = {name: (one.peak_flops / 1e12, one.accelerator.memory_bytes / 2**20) for name, one in DATASHEETS.items()}
    assert found == {"a100": (312, 81049), "h100": (989, 81089), "h200": (989, 143771)}


def test_nodes_of_gpus() -> None:
    found = cluster("H100", 4, 8)
    assert found.size == 32
    assert found.network.ranks_per_node == 8
    assert found.machine.device("auto") == "cuda"
    assert len(found.machine.accelerators) == 8
    assert str(found) == "4 × 8 H100 80 GB"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("h10", 1, 8), "did you mean 'h100'"),
        (("tpu", 1, 8), "choose from a100, h100, h200"),
        (("a100", 0, 8), "nodes=0 of gpus_per_node=8 is not possible"),
        (("a100", 1, -1), "give at least one"),
        (("a100", 10**6, 8), "at most a million"),
    ],
)
def test_impossible_clusters_are_refused(words: tuple[str, int, int], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        cluster(*words)
