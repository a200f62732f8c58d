"""Cells that a resumed study keeps, by its mode and by what has changed since they ran."""

import pytest

from assay.config import load
from assay.hardware import Accelerator, detect
from assay.optimizations import resolve_run
from assay.records.run import Environment, RunResult
from assay.records.status import Status
from assay.records.study import Cell, CellResult
from assay.studies.execution.fold import Mode, cells_to_keep, elsewhere

RUN = resolve_run(load("demo"))
HERE = detect()
TEXT = "digest of the text"
WITH_GPU = HERE.model_copy(update={"accelerators": (Accelerator(name="NVIDIA H100", memory_bytes=80 * 10**9),)})


def environment(**changes: object) -> Environment:
    from importlib.metadata import version

    import torch

    now = {
        "assay": version("assay"),
        "torch": str(torch.__version__),
        "python": "3.11",
        "device": "cpu",
        "processor": HERE.processor,
        "cores": HERE.cores,
        "threads": 2,
        "memory_bytes": 2**30,
    }
    return Environment.model_validate({**now, **changes})


def cell(status: Status = Status.DONE, where: Environment | None = None) -> CellResult:
    result = RunResult(
        run="a", status=status, reason=None, created="2026-11-21", identity="0" * 12, config=RUN, environment=where
    )
    return CellResult(cell=Cell(treatment="x", seed=1, run=RUN), wave=0, result=result)


@pytest.mark.parametrize(
    ("mode", "again"),
    [
        (Mode.MISSING, set()),
        (Mode.RETRY_FAILED, {Status.FAILED, Status.KILLED, Status.TIMED_OUT, Status.UNAVAILABLE, Status.DAMAGED}),
        (Mode.FORCE, set(Status)),
    ],
)
def test_results_are_never_retried_and_faults_only_if_wanted(mode: Mode, again: set[Status]) -> None:
    cells = [cell(status) for status in Status]
    assert {one.result.status for one in cells_to_keep(cells, mode)} == set(Status) - again


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({}, None),
        ({"torch": "1.0"}, "torch"),
        ({"processor": "Z80", "cores": 1}, "processor, cores"),
        ({"assay": "0.0"}, "assay"),
        ({"threads": 9}, None),
        ({"corpus_digest": TEXT}, None),
        ({"corpus_digest": "another"}, "corpus"),
        ({"instruction_set": "abacus"}, "instruction set"),
        ({"device": "cuda", "accelerator": "NVIDIA V100"}, "accelerator"),
        ({"device": "cuda", "accelerator": "NVIDIA H100"}, None),
    ],
)
def test_a_finished_cell_is_known_by_its_packages_machine_and_text(
    change: dict[str, object], differs: str | None
) -> None:
    one = cell(where=environment(**change))
    assert elsewhere([one], WITH_GPU, lambda config: TEXT) == ({} if differs is None else {differs: [one]})


def test_a_cell_without_an_environment_counts_and_no_text_is_read_for_it() -> None:
    def unread(config: object) -> str:
        raise AssertionError("nothing is compared")

    assert elsewhere([cell(), cell(where=environment())], HERE, unread) == {}
