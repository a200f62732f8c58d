"""The machine is measured once, by another process, and again only when asked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.config import Home
from assay.errors import UsageError
from assay.hardware.rates import known_rates, rates_file, with_rates
from assay.launch import rates as machine
from assay.launch.rates import measured_machine
from assay.worker.processes.channel import PARENT_GONE
from support.machines import MEASURED


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A measurement that takes no time and leaves a line."""
    log = tmp_path / "log"
    code = f"import sys; open({str(log)!r}, 'a').write(sys.argv[1] + '\\n'); print({MEASURED.model_dump_json()!r})"
    monkeypatch.setattr(machine, "_MEASURE", (sys.executable, "-c", code))
    monkeypatch.setattr(machine, "devices", lambda found: ("cpu",))
    return log


def test_measured_once_and_again_when_asked(tmp_path: Path, log: Path) -> None:
    home, heard = Home(tmp_path / "home"), list[str]()
    assert measured_machine(home, tell=heard.append).rates == {"cpu": MEASURED}
    assert len(heard) == 1
    assert measured_machine(home, tell=heard.append).rates == {"cpu": MEASURED}
    assert len(heard) == 1
    assert measured_machine(home, fresh=True).rates == {"cpu": MEASURED}
    assert log.read_text() == "cpu\ncpu\n"


def test_one_home_knows_the_rates_of_another(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_MACHINE", str(tmp_path / "of-user"))
    first, second = Home(tmp_path / "first"), Home(tmp_path / "second")
    assert measured_machine(first).rates == {"cpu": MEASURED}
    assert not rates_file(first).exists()
    assert measured_machine(second).rates == {"cpu": MEASURED}
    assert log.read_text() == "cpu\n"


def test_a_home_with_rates_of_its_own_keeps_them_and_has_them_measured_anew(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, old = Home(tmp_path / "home"), MEASURED.model_copy(update={"bandwidth_bytes": 1e9})
    known = measured_machine(home)
    rates_file(home).write_bytes(with_rates(rates_file(home), known, {"cpu": old}))
    monkeypatch.setenv("ASSAY_MACHINE", str(tmp_path / "of-user"))
    assert measured_machine(home).rates == {"cpu": old}
    assert measured_machine(home, fresh=True).rates == {"cpu": MEASURED}
    assert known_rates(home, known) == known_rates(Home(tmp_path / "new"), known) == {"cpu": MEASURED}


def test_where_the_user_has_no_place_the_home_keeps_them(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("ASSAY_MACHINE", str(tmp_path / "file" / "below"))
    home = Home(tmp_path / "home")
    assert measured_machine(home).rates == {"cpu": MEASURED}
    assert rates_file(home).exists()


def test_a_device_that_torch_lacks_stays_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
    monkeypatch.setattr(machine, "_MEASURE", (sys.executable, "-c", "raise SystemExit(2)"))
    heard = list[str]()
    assert measured_machine(Home(tmp_path / "home"), tell=heard.append).rates == {}
    assert "stay unknown" in heard[-1]


def test_a_gpu_that_is_absent_is_not_measured(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "devices", lambda found: ("cpu", "cuda"))
    monkeypatch.setenv("ASSAY_ABSENT_NAME", "NVIDIA H200")
    heard = list[str]()
    with pytest.raises(UsageError, match="the NVIDIA H200 is absent and computes nothing, so nothing can be timed"):
        measured_machine(Home(tmp_path / "home"), tell=heard.append)
    assert heard == [], "no other device is measured before it is refused"


def test_a_machine_that_is_too_busy_stays_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
    monkeypatch.setattr(machine, "_MEASURE", (sys.executable, "-c", "import sys; sys.stdin.read()"))
    monkeypatch.setattr(machine, "_LIMIT_SECONDS", 0.05)
    heard = list[str]()
    assert measured_machine(Home(tmp_path / "home"), tell=heard.append).rates == {}
    assert "too busy to be measured" in heard[-1]


def test_a_measurement_that_breaks_off_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
    monkeypatch.setattr(machine, "_MEASURE", (sys.executable, "-c", "raise ValueError('no luck')"))
    with pytest.raises(RuntimeError, match="the measurement of cpu ended with exit code 1: ValueError: no luck"):
        measured_machine(Home(tmp_path / "home"))


def test_a_place_that_cannot_be_written_is_said_first(tmp_path: Path, log: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(UsageError, match="cannot be a folder"):
        measured_machine(Home(tmp_path / "home"))
    assert not log.exists()


def test_measuring_ends_with_whoever_asked() -> None:
    listening, held = os.pipe()
    with subprocess.Popen([*machine._MEASURE, "cpu"], stdin=listening, stdout=subprocess.DEVNULL) as child:
        os.close(listening)
        os.close(held)
        assert child.wait(timeout=60) == PARENT_GONE
