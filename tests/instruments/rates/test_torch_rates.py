"""Rates of this machine: measured, whole, and one line of JSON."""

from collections.abc import Callable
from functools import partial
from itertools import chain, count, repeat

import pytest
import torch

from assay.hardware import Rates
from assay.hardware.detect import OperatorSpeed
from assay.hardware.links import Link
from assay.instruments.rates import timed_operators, torch_rates
from assay.instruments.rates.torch_rates import measure_link

SPEED = OperatorSpeed(at=(1.0,), forward=(1e9,), backward=(1e9,))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_rates, "_SMALLEST", 32)
    monkeypatch.setattr(torch_rates, "_COPY_BYTES", {"cpu": 2**22, "cuda": 2**28})


def test_every_dtype_has_a_rate() -> None:
    rates = torch_rates.measure_rates("cpu", seconds=0.2)
    assert set(rates.matmul_flops) == set(torch_rates.DTYPES)
    assert all(rate > 0 for rate in rates.matmul_flops.values())
    assert rates.bandwidth_bytes > 0
    assert 0 < rates.launch_seconds < 1e-3
    assert 0 < rates.backward_launch_seconds < 1e-3
    assert rates.others_share is not None
    assert (rates.device, rates.threads, rates.torch) == ("cpu", torch.get_num_threads(), torch.__version__)


def test_the_fastest_size_and_factor_count(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = chain([*[4.0] * 3, 9.0, *[1.0] * 2, *[0.5] * 3], repeat(8.0))
    monkeypatch.setattr(torch_rates, "_timed", lambda device, work, times: next(seconds))
    monkeypatch.setattr(timed_operators.time, "perf_counter", partial(next, count()))
    # Products of 32 as they lie and transposed, a slow trial among the latter; of 64 only the first kind is fast.
    assert torch_rates._matmul_rate("cpu", "float32", seconds=20.0) == (2 * 64**3 / 0.5, True)


def test_one_slow_trial_does_not_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(torch_rates, "_products", lambda left, right: [lambda: sizes.append(len(left))])
    monkeypatch.setattr(torch_rates, "_LARGEST", {"cpu": 128})

    def timed(device: str, work: Callable[[], object], times: int) -> float:
        work()
        return 60.0 if len(sizes) == 1 else 1e-3

    monkeypatch.setattr(torch_rates, "_timed", timed)
    rate = torch_rates._matmul_rate("cpu", "float32", seconds=0.05)
    assert rate == (2 * 128**3 / 1e-3, True)
    assert set(sizes) == {32, 64, 128}


def test_products_have_random_factors_and_run_alone_and_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    factors: list[torch.Tensor] = []
    times: list[int] = []

    def products(left: torch.Tensor, right: torch.Tensor) -> list[Callable[[], object]]:
        factors.extend((left, right))
        return [lambda: None]

    def timed(device: str, work: Callable[[], object], number: int) -> float:
        times.append(number)
        return 1.0 / number

    monkeypatch.setattr(torch_rates, "_products", products)
    monkeypatch.setattr(torch_rates, "_timed", timed)
    monkeypatch.setattr(torch_rates, "_BURSTS", {"cpu": (1, 20)})
    assert torch_rates._matmul_rate("cpu", "float32", seconds=0.0) == (2 * 32**3 * 20, True)
    assert set(times) == {1, 20}
    assert all(0.9 < one.std() < 1.1 for one in factors)


def test_a_contradiction_is_measured_again_and_named_where_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*float32: float) -> Rates:
        found = iter(float32)

        def rate(device: str, dtype: str, seconds: float) -> torch_rates._Rate:
            return torch_rates._Rate(next(found) if dtype == "float32" else 84e9, confirmed=True)

        monkeypatch.setattr(torch_rates, "_matmul_rate", rate)
        return torch_rates.measure_rates("cpu", seconds=0.01)

    mended = measured(646e6, 100e9)
    assert mended.matmul_flops["float32"] == 100e9
    assert "float32" not in mended.doubtful
    stays = measured(646e6, 647e6, 648e6)
    assert stays.matmul_flops["float32"] == 648e6
    assert "float32" in stays.doubtful
    assert "float32" in stays.caveat


def test_a_device_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="no device 'tpu'"):
        torch_rates.measure_rates("tpu")
    with pytest.raises(SystemExit) as stop:
        torch_rates.main(["tpu"])
    assert stop.value.code == 2
    assert capsys.readouterr().out == ""


def test_the_program_prints_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(name="any", latency_seconds=1e-5, bandwidth_bytes=1e9, source="here")
    monkeypatch.setattr(torch_rates, "measure_link", lambda: link)
    monkeypatch.setattr(torch_rates, "measure_operators", lambda rates: {"aten.add": SPEED})  # takes five seconds
    assert torch_rates.main(["cpu", "--seconds", "0.05"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    found = Rates.model_validate_json(out)
    assert (found.device, found.link, found.operators) == ("cpu", link, {"aten.add": SPEED})


@pytest.mark.gpu
@pytest.mark.device_values("products are timed")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_faster_in_bfloat16() -> None:
    rates = torch_rates.measure_rates("cuda", seconds=1.0)
    assert rates.matmul_flops["bfloat16"] > rates.matmul_flops["float64"]


def test_two_processes_of_this_machine_measure_what_joins_them() -> None:
    link = measure_link()
    assert 0 < link.latency_seconds < 10
    assert link.bandwidth_bytes > 0
    assert link.seconds(2**24) > link.seconds(0, steps=2)
    assert "measured" in link.source
