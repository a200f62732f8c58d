"""An entry says what the comparison found, and goes through its file unchanged."""

from pathlib import Path

import pytest

from assay.analysis.catalogue import Catalogue, CatalogueEntry, entry_of, read, shipped_path
from assay.analysis.comparison import analyse
from assay.analysis.effects import Verdict
from assay.errors import UsageError
from assay.optimizations import catalogue
from assay.records.status import Status
from support.comparisons import FACTORS, TREATMENTS, record


@pytest.fixture(scope="module")
def entry() -> CatalogueEntry:
    return entry_of(analyse(record()), "bf16_mixed", TREATMENTS[1], "demo")


def test_an_entry_is_what_was_compared(entry: CatalogueEntry) -> None:
    tensors, _, step, _ = FACTORS[TREATMENTS[1]]
    assert (entry.status, entry.proven, entry.evidence) == (Status.DONE, True, "49 of 49 matmuls in bfloat16")
    assert (entry.device, entry.date) == ("Some Processor @ 2.1 GHz, 2 cores", record().created[:10])
    assert entry.changes["tensors_peak_bytes"].change == pytest.approx(tensors - 1, abs=1e-6)
    assert entry.changes["tokens_per_second"].change == pytest.approx(1 / step - 1, rel=0.05)
    assert entry.changes["step_seconds"].verdict is Verdict.DIFFERS
    assert entry.predicted_peak_bytes == pytest.approx(entry.tensors_peak_bytes, rel=0.01)


def test_the_proof_of_a_stack_is_that_of_its_own(entry: CatalogueEntry) -> None:
    stacked = entry_of(analyse(record()), "activation_checkpointing", TREATMENTS[4], "demo")
    assert "4 of 4 blocks" in stacked.evidence
    assert entry_of(analyse(record()), "compile", TREATMENTS[4], "demo").proven is None


def test_a_program_that_computes_wrong_values_is_not_proven() -> None:
    comparison = analyse(record(factors={**FACTORS, TREATMENTS[2]: (0.5, 0.6, 1.2, 1e-9)}))
    found = entry_of(comparison, TREATMENTS[2], TREATMENTS[2], "demo")
    assert (found.status, found.proven) == (Status.WRONG_VALUES, None)


def test_it_is_read_as_it_was_written(entry: CatalogueEntry, tmp_path: Path) -> None:
    Catalogue(entries=(entry,)).write(tmp_path / "one.json")
    assert read(tmp_path / "one.json").entries == (entry,)


def test_a_new_entry_replaces_the_same_device_s_only(entry: CatalogueEntry) -> None:
    elsewhere = entry.model_copy(update={"device": "another"})
    later = entry.model_copy(update={"date": "2027-01-01"})
    found = Catalogue().renewed([entry, elsewhere]).renewed([later])
    assert found.of("bf16_mixed") == (later, elsewhere)
    assert found.by_device() == {entry.device: {"bf16_mixed": later}, "another": {"bf16_mixed": elsewhere}}


def test_the_measurements_of_the_package_can_be_read_and_name_known_techniques() -> None:
    assert {one.optimization for one in read(shipped_path()).entries} <= set(catalogue())


@pytest.mark.parametrize("text", ["", "{", '{"entries": [{}]}'])
def test_another_file_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "other").write_text(text)
    with pytest.raises(UsageError, match=r"not a measured catalogue .*benchmarks/catalogue\.py"):
        read(tmp_path / "other")
