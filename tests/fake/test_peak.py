"""Whether a step fits: what a trace knows, what it does not, and what running it knows."""

import pytest

from assay.absent.largest import Probe, Search, search_largest
from assay.estimator.memory_fit import MemoryFit
from assay.fake.peak import GpuPeak
from assay.report import view
from assay.report.gpu_peak import UNTOLD, headline
from assay.report.kit.blocks import Table

GB = 10**9


def peak(requested: int, **changes: object) -> GpuPeak:
    """A step on one RTX 4090, of which torch sees 25.4 GB."""
    fields = {
        "device": "rtx4090",
        "torch": "2.13.0+cpu",
        "ran": False,
        "parameters": 1000,
        "peak_bytes": requested - 64 * 2**20,
        "requested_peak_bytes": requested,
        "instant": "backward: MmBackward",
        "parts": {"weights": requested - 64 * 2**20, "workspaces of cuBLAS": 64 * 2**20},
        "kernels": {"flash": 12},
    }
    return GpuPeak.model_validate({**fields, **changes})


@pytest.mark.parametrize(
    ("found", "fit"),
    [
        (peak(10 * GB), MemoryFit.YES),
        (peak(24 * GB), MemoryFit.BARELY),
        (peak(25 * GB), MemoryFit.NO),
        (peak(10 * GB, unknown=("cuDNN's convolutions",)), MemoryFit.CONDITIONAL),
        (peak(24 * GB, unknown=("cuDNN's convolutions",)), MemoryFit.BARELY),
        (peak(9 * GB, ran=True, reserved_peak_bytes=9 * GB, exhausted="CUDA out of memory"), MemoryFit.NO),
        (peak(20 * GB, ran=True, allocated_peak_bytes=20 * GB, reserved_peak_bytes=24 * GB), MemoryFit.YES),
        (peak(20 * GB, ran=True, allocated_peak_bytes=20 * GB, reserved_peak_bytes=25 * GB), MemoryFit.NO),
        (peak(20 * GB, ran=True, reserved_peak_bytes=24_650_000_000), MemoryFit.BARELY),
    ],
)
def test_whether_a_step_fits(found: GpuPeak, fit: MemoryFit) -> None:
    assert found.fit is fit
    assert view(found).values()["fits"] == fit.value
    assert "fit" in headline(found)


def test_a_trace_says_what_it_does_not_know() -> None:
    blocks = list(view(peak(10 * GB, unknown=("cuDNN's convolutions",), batch_size=8, largest_batch=21)).blocks())
    text = "\n".join(map(str, blocks))
    assert UNTOLD in text
    assert "cuDNN's convolutions" in text
    assert "21, also if the allocator reserves 1.33 times what is requested" in text
    of = "one NVIDIA GeForce RTX 4090 of 23.6 GiB"  # beside 1.33 times 10 GB and a context
    assert blocks[0] == f"It fits {of}, if unknown workspaces take no more than 10.5 GiB."
    (table,) = [one for one in blocks if isinstance(one, Table)]
    assert len(table.rows) == 2


@pytest.mark.parametrize("start", [1, 3, 8, 500])
@pytest.mark.parametrize(
    ("fixed", "each", "bend"), [(10**9, 10**8, 0.0), (10**9, 10**8, 0.01), (0, 3 * 10**7, 0.0), (20 * GB, 10**9, 0.0)]
)
def test_the_largest_batch_is_the_last_that_surely_fits(start: int, fixed: int, each: int, bend: float) -> None:
    def peak_at(rows: int) -> GpuPeak:
        return peak(fixed + int(rows * each * (1 + bend * rows)))

    found = Search(search_largest(peak_at, (Probe(start, peak_at(start)),)))
    right = next(rows - 1 for rows in range(1, 10**4) if peak_at(rows).fit is not MemoryFit.YES)
    assert (found.best.number if found.best else 0) == right
    assert len(found.probes) < 25
    assert len({one.number for one in found.probes}) == len(found.probes)
