"""Rates are known only under what they were measured with."""

import json
from pathlib import Path

import pytest

from assay.config import Home
from assay.files import seal_file
from assay.hardware import Accelerator, Machine, rates
from support.machines import MEASURED

MACHINE = Machine(processor="a processor", cores=2, memory_bytes=2**34)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    home = Home(tmp_path)
    home.cache.mkdir()
    rates.rates_file(home).write_bytes(rates.with_rates(rates.rates_file(home), MACHINE, {"cpu": MEASURED}))
    return home


def test_measured_rates_are_known(home: Home) -> None:
    assert rates.known_rates(home, MACHINE) == {"cpu": MEASURED}
    assert rates.known_rates(Home(home.root / "elsewhere"), MACHINE) == {}


def test_another_processor_torch_or_thread_count_is_not(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rates.known_rates(home, MACHINE.model_copy(update={"processor": "another"})) == {}
    assert rates.known_rates(home, MACHINE.model_copy(update={"cores": 4})) == {}
    with monkeypatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        assert rates.known_rates(home, MACHINE) == {}
    monkeypatch.setattr(rates, "torch_version", lambda: "0.0")
    assert rates.known_rates(home, MACHINE) == {}


def test_entries_of_other_machines_stay(home: Home) -> None:
    other = MACHINE.model_copy(
        update={"processor": "another", "accelerators": (Accelerator(name="G", memory_bytes=1),)}
    )
    both = {"cpu": MEASURED, "cuda": MEASURED.model_copy(update={"device": "cuda"})}
    rates.rates_file(home).write_bytes(rates.with_rates(rates.rates_file(home), other, both))
    assert rates.known_rates(home, other) == both
    assert rates.known_rates(home, MACHINE) == {"cpu": MEASURED}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"cpu": 3}', b"\xff"])
def test_a_damaged_file_is_an_empty_one(home: Home, content: bytes) -> None:
    rates.rates_file(home).write_bytes(content)
    assert rates.known_rates(home, MACHINE) == {}


def test_this_machine_has_the_rates_measured_on_it(home: Home) -> None:
    here = rates.known_machine(home)
    assert here.rates == {}
    rates.rates_file(home).write_bytes(rates.with_rates(rates.rates_file(home), here, {"cpu": MEASURED}))
    assert rates.known_machine(home).rates["cpu"] == MEASURED


def test_a_file_of_an_earlier_version_is_read(home: Home) -> None:
    old = MEASURED.model_dump(exclude={"doubtful", "others_share"})
    key = rates._key("cpu", MACHINE, None)
    rates.rates_file(home).write_bytes(seal_file(json.dumps({key: old}, indent=1)))
    assert rates.known_rates(home, MACHINE) == {"cpu": MEASURED}
    assert MEASURED.caveat == ""


def test_rates_that_contradict_each_other_are_known_only_with_their_mark(home: Home) -> None:
    wrong = MEASURED.model_copy(update={"matmul_flops": {"float32": 646e6, "float64": 84e9}})
    rates.rates_file(home).write_bytes(rates.with_rates(rates.rates_file(home), MACHINE, {"cpu": wrong}))
    assert rates.known_rates(home, MACHINE) == {}
    marked = wrong.model_copy(update={"doubtful": ("float32",), "others_share": 0.35})
    rates.rates_file(home).write_bytes(rates.with_rates(rates.rates_file(home), MACHINE, {"cpu": marked}))
    assert rates.known_rates(home, MACHINE) == {"cpu": marked}
    assert marked.caveat == "measured under load, other processes used 35% of the cores; no two trials agree: float32"


def test_fewer_instructions_are_another_machine(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert rates.known_rates(home, MACHINE) == {}
    assert rates.known_rates(home, MACHINE.model_copy(update={"instruction_set": "avx2"})) == {}


def test_rates_of_a_user_serve_every_home_and_those_of_a_home_come_first(
    home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ASSAY_MACHINE", str(tmp_path / "of-user"))
    (tmp_path / "of-user").mkdir()
    theirs = MEASURED.model_copy(update={"bandwidth_bytes": 2 * MEASURED.bandwidth_bytes})
    place = rates.user_rates_file()
    assert place == tmp_path / "of-user" / "machine.json"
    place.write_bytes(rates.with_rates(place, MACHINE, {"cpu": theirs}))
    assert rates.known_rates(Home(tmp_path / "new"), MACHINE) == {"cpu": theirs}
    assert rates.known_rates(home, MACHINE) == {"cpu": MEASURED}
    assert not (tmp_path / "new").exists()
    rates.rates_file(home).write_bytes(b"damaged")
    assert rates.known_rates(home, MACHINE) == {"cpu": theirs}
    place.write_bytes(b"damaged")
    assert rates.damaged_files(home) == [place, rates.rates_file(home)]


def test_the_place_of_a_user_can_be_named_or_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert rates.user_rates_file() is None
    monkeypatch.delenv("ASSAY_MACHINE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert rates.user_rates_file() == tmp_path / "assay" / "machine.json"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert rates.user_rates_file() is None
