"""Whether a step fits: what a trace knows, what it does not, and what running it knows."""

import pytest

from assay.absent.answer import Fit
from assay.fake.peak import GpuPeak
from assay.report.blocks import Table
from assay.report.gpu_peak import UNTOLD, gpu_peak_report, gpu_peak_values, headline

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
        (peak(10 * GB), Fit.YES),
        (peak(24 * GB), Fit.BARELY),
        (peak(25 * GB), Fit.NO),
        (peak(10 * GB, unknown=("cuDNN's convolutions",)), Fit.UNKNOWN),
        (peak(20 * GB, ran=True, allocated_peak_bytes=20 * GB, reserved_peak_bytes=24 * GB), Fit.YES),
        (peak(20 * GB, ran=True, allocated_peak_bytes=20 * GB, reserved_peak_bytes=25 * GB), Fit.NO),
    ],
)
def test_whether_a_step_fits(found: GpuPeak, fit: Fit) -> None:
    assert found.fit is fit
    assert gpu_peak_values(found)["fits"] == fit.value
    assert "fit" in headline(found)


def test_a_trace_says_what_it_does_not_know() -> None:
    blocks = list(gpu_peak_report(peak(10 * GB, unknown=("cuDNN's convolutions",), batch_size=8, largest_batch=21)))
    text = "\n".join(map(str, blocks))
    assert UNTOLD in text
    assert "cuDNN's convolutions" in text
    assert "if the allocator added nothing" in text
    (table,) = [one for one in blocks if isinstance(one, Table)]
    assert len(table.rows) == 2
