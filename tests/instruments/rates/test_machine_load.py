"""What others did meanwhile, from files that the kernel could have written, and from the kernel itself."""

import time
from pathlib import Path

import pytest

from assay.instruments.rates import machine_load
from assay.records.timing import Block


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, file in {"_STAT": "stat", "_LOAD": "loadavg", "_PROCESSORS": "cpuinfo", "_CORES": "cpu"}.items():
        monkeypatch.setattr(machine_load, name, tmp_path / file)
    monkeypatch.setattr(machine_load.os, "sysconf", lambda name: 100)
    monkeypatch.setattr(machine_load.os, "cpu_count", lambda: 2)
    return tmp_path


def test_others_are_what_is_busy_and_not_ours(kernel: Path) -> None:
    (kernel / "stat").write_text("cpu  100 0 50 9000 10 5 5 20 0 0\ncpu0 1 2 3\n")
    before = machine_load.read()
    (kernel / "stat").write_text("cpu  180 10 60 9500 90 5 5 50 0 0\n")
    (kernel / "loadavg").write_text("1.25 0.5 0.2 2/95 55\n")
    (kernel / "cpuinfo").write_text("cpu MHz\t\t: 2000.0\ncpu MHz\t\t: 3000.0\n")
    found = machine_load.during([(before, machine_load.read())], [0.25, 0.5])
    assert found.others_seconds == pytest.approx(0.25)
    assert found.steal_seconds == pytest.approx(0.3)
    assert (found.load, found.clock_hertz, found.cores) == (1.25, 2.5e9, 2)


def test_the_drivers_frequency_comes_first(kernel: Path) -> None:
    for core, kilohertz in (("cpu0", 1_000_000), ("cpu1", 3_000_000)):
        (kernel / "cpu" / core / "cpufreq").mkdir(parents=True)
        (kernel / "cpu" / core / "cpufreq" / "scaling_cur_freq").write_text(f"{kilohertz}\n")
    (kernel / "cpuinfo").write_text("cpu MHz : 5000.0\n")
    found = machine_load.during([(machine_load.read(), machine_load.read())], [])
    assert found.clock_hertz == pytest.approx(2e9)


@pytest.mark.parametrize("text", [None, "", "cpu  1 2 3\n", "cpu  a b c d e f g h\n"])
def test_a_figure_that_the_kernel_does_not_give_is_none(kernel: Path, text: str | None) -> None:
    if text is not None:
        (kernel / "stat").write_text(text)
    found = machine_load.during([(machine_load.read(), machine_load.read())], [0.0])
    assert (found.others_seconds, found.steal_seconds, found.load, found.clock_hertz) == (None, None, None, None)


def test_our_own_work_is_not_anothers() -> None:
    before = machine_load.read()
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert machine_load.read().own_seconds - before.own_seconds >= 0.1


@pytest.mark.parametrize(
    ("seconds", "others", "steal", "disturbed"),
    [
        (1.0, 0.19, 0.0, False),
        (1.0, 0.21, 0.0, True),
        (1.0, 0.1, 0.11, True),
        (1.0, 0.21, None, True),
        (1.0, None, None, False),
        (0.1, 0.03, 0.0, False),  # three ticks of the kernel's clock
        (0.1, 0.05, 0.0, True),
    ],
)
def test_the_rule_of_a_disturbed_block(
    seconds: float, others: float | None, steal: float | None, disturbed: bool
) -> None:
    around = {"others_seconds": others, "steal_seconds": steal, "cores": 2}
    block = Block(steps=5, seconds=seconds, median_step_seconds=seconds / 5, tokens=5, process_peak_bytes=1, **around)
    assert block.disturbed is disturbed


def test_a_block_of_an_earlier_version_is_read() -> None:
    event = {"event": "block", "steps": 5, "seconds": 1.0, "median_step_seconds": 0.2, "tokens": 5}
    block = Block.of({**event, "process_peak_bytes": None})
    assert (block.others_seconds, block.disturbed, block.repeated) == (None, False, False)
    assert Block.model_validate_json(block.model_dump_json()) == block
