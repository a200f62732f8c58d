"""Rates of this machine: measured, whole, and one line of JSON."""

import pytest
import torch

from assay.hardware import Rates
from assay.measure import machine


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_SMALLEST", 32)
    monkeypatch.setattr(machine, "_COPY_BYTES", {"cpu": 2**22})


def test_every_dtype_has_a_rate() -> None:
    rates = machine.measure_rates("cpu", seconds=0.2)
    assert set(rates.matmul_flops) == set(machine.DTYPES)
    assert all(rate > 0 for rate in rates.matmul_flops.values())
    assert rates.bandwidth_bytes > 0
    assert 0 < rates.launch_seconds < 1e-3
    assert 0 < rates.backward_launch_seconds < 1e-3
    assert (rates.device, rates.threads, rates.torch) == ("cpu", torch.get_num_threads(), torch.__version__)


def test_the_fastest_repetition_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.5, 0.25, 1.0, *[2.0] * 9])
    monkeypatch.setattr(machine, "_timed", lambda device, work: next(seconds))
    clock = iter(range(100))
    monkeypatch.setattr(machine.time, "perf_counter", lambda: float(next(clock)))
    assert machine._shortest("cpu", lambda: None, seconds=3.0) == 0.25
    # Products of 32, then 64 where the time allows one more size: the rate is of the fastest.
    # The transposed factor is the slower one here, and is not tried again.
    seconds = iter([4.0, 1.0, 2.0, *[5.0] * 3, 0.5, *[4.0] * 9])
    assert machine._matmul_flops("cpu", torch.float32, seconds=2.0) == 2 * 32**3 / 0.5


def test_sizes_grow_while_time_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(machine, "_products", lambda left, right: [lambda: sizes.append(len(left))])
    monkeypatch.setattr(machine, "_LARGEST", {"cpu": 128})
    rate = machine._matmul_flops("cpu", torch.float32, seconds=0.01)
    assert rate is not None
    assert sizes[:3] == [32] * 3
    assert set(sizes) == {32, 64, 128}


def test_a_device_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="no device 'tpu'"):
        machine.measure_rates("tpu")
    with pytest.raises(SystemExit) as stop:
        machine.main(["tpu"])
    assert stop.value.code == 2
    assert capsys.readouterr().out == ""


def test_the_program_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert machine.main(["cpu", "--seconds", "0.05"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert Rates.model_validate_json(out).device == "cpu"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_faster_in_bfloat16() -> None:
    rates = machine.measure_rates("cuda", seconds=1.0)
    assert rates.matmul_flops["bfloat16"] > rates.matmul_flops["float64"]
