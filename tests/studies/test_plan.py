from pathlib import Path

import pytest

from assay.config import load
from assay.hardware import Accelerator, Machine
from assay.launch.prepare import ReadyRun
from assay.records.prediction import Predicted
from assay.records.study import BASELINE
from assay.studies import plan
from assay.studies.plan import Needs, waves
from support.designs import design

CELLS = design(load("demo"), ["sdpa_attention", "bf16_mixed", "activation_checkpointing"], seeds=2)
GIB = 2**30


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    class Memory:
        available = 10 * GIB

    monkeypatch.setattr(plan.psutil, "virtual_memory", lambda: Memory)


def needs(peaks: list[int | None], device: str = "cpu", accelerators: tuple[Accelerator, ...] = ()) -> Needs:
    run = load("demo", [f"device={device}"])
    ready = [ReadyRun(run, Path(), "", None if peak is None else Predicted(tensors_peak_bytes=peak)) for peak in peaks]
    machine = Machine(processor="p", cores=2, memory_bytes=64 * GIB, accelerators=accelerators)
    return Needs(ready, machine)


def test_all_cells_of_a_seed_are_alive_together() -> None:
    together = waves(CELLS, resident=5)
    assert [len(wave) for wave in together] == [5, 5]
    assert [{cell.seed for cell in wave} for wave in together] == [{0}, {1}]


def test_smaller_waves_each_bring_a_baseline_along() -> None:
    cut = waves(CELLS, resident=3)
    assert [[cell.treatment for cell in wave] for wave in cut[:2]] == [
        [BASELINE, "baseline (again)", "sdpa_attention"],
        [BASELINE, "bf16_mixed", "activation_checkpointing"],
    ]
    assert cut[1][0].replicate == 2
    names = [cell.name for wave in cut for cell in wave]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("resident", [1, 2, 3, 4, 5, 9])
def test_no_cell_is_lost_and_no_wave_too_large(resident: int) -> None:
    cut = waves(CELLS, resident)
    assert all(len(wave) <= resident for wave in cut)
    assert {cell.name for cell in CELLS} <= {cell.name for wave in cut for cell in wave}
    assert all(any(cell.treatment == BASELINE for cell in wave) for wave in cut) or resident == 1
    assert all(len({cell.seed for cell in wave}) == 1 for wave in cut)


@pytest.mark.usefixtures("free")
def test_everything_fits() -> None:
    found = needs([GIB // 2] * 5)
    assert found.resident() == 5
    assert found.note(5) is None


@pytest.mark.usefixtures("free")
def test_the_largest_decide_how_many_fit() -> None:
    # 8.5 GiB may be counted on: two of 3.5 GiB and one of 1.5 GiB just fit
    found = needs([GIB, 3 * GIB, GIB, 3 * GIB, GIB])
    assert found.resident() == 3
    note = found.note(3)
    assert note is not None
    assert "3 at a time, each group with a baseline of its own" in note


@pytest.mark.usefixtures("free")
def test_one_after_another_where_nothing_fits_or_nothing_is_known() -> None:
    assert needs([20 * GIB] * 3).resident() == 1
    unknown = needs([GIB, None])
    assert unknown.resident() == 1
    assert "not known" in (unknown.note(1) or "")


@pytest.mark.usefixtures("free")
def test_on_an_accelerator_its_own_memory_decides() -> None:
    gpu = Accelerator(name="some GPU", memory_bytes=16 * GIB)
    # 13.6 GiB may be counted on; each takes 0.625 + 1.5 × 3 = 5.125 GiB of it, and half a GiB of the host's
    assert needs([3 * GIB] * 5, "cuda", (gpu,)).resident() == 2
