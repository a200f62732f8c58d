"""The smallest study: a baseline against some treatments, seeds paired, cells interleaved."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from assay.config.home import Home
from assay.config.run import Run
from assay.data.progress import Progress
from assay.errors import UsageError
from assay.hardware import Machine, detect
from assay.optimizations import check, normalize
from assay.runs.launcher import start
from assay.runs.machine import measured_machine
from assay.runs.prepare import ReadyRun, leaving_nothing, ready, threads_of
from assay.studies.design import AGAIN, BASELINE, Cell, design, enough
from assay.studies.drift import NUDGED, nudged
from assay.studies.plan import Needs, waves
from assay.studies.protocol import Child, Listener, conduct
from assay.studies.record import ComparisonRecord, Protocol, new_id, save


def compare(
    base: Run,
    treatments: Sequence[str],
    *,
    home: Home,
    seeds: int,
    processes: int | None,
    blocks: int,
    timeout: float | None,
    title: str,
    prepare: Progress,
    tell: Listener,
) -> ComparisonRecord:
    """Measure the baseline twice and every treatment once in each process of each seed, and keep the record.

    `processes` are those of each row at each seed; None takes as many as an interval needs. Raises as `measured`.
    """
    cells = design(base, treatments, seeds, enough(seeds) if processes is None else processes)
    return measured(cells, base, home=home, blocks=blocks, timeout=timeout, title=title, prepare=prepare, tell=tell)


def measured(
    cells: Sequence[Cell],
    base: Run,
    *,
    home: Home,
    blocks: int,
    timeout: float | None,
    title: str,
    prepare: Progress,
    tell: Listener,
) -> ComparisonRecord:
    """Measure the cells of a design, and keep the record. `timeout` is in seconds that one cell may work.

    Raises `UsageError` before anything runs for whatever is wrong with any cell, and `StorageError` when the disk
    refuses.
    """
    if blocks < 1:
        raise UsageError(f"--blocks {blocks} is not possible; a cell needs at least one timed block")
    if timeout is not None and not timeout > 0:
        raise UsageError(f"--timeout {timeout:g} is not possible; give a positive number of seconds")
    machine = detect()
    cells, prepared = _ready(cells, machine, home, prepare)
    together = (cell for cell in cells if (cell.seed, cell.process) == (base.seed, 0))
    needs = Needs((prepared[cell.name] for cell in together), machine)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    drifts = nudged(cells, accelerated=machine.device(base.device) == "cuda")
    prepared |= {one.name: replace(prepared[cells[0].name], run=one.run, predicted=None) for one in drifts}
    planned = [*waves(cells, needs.resident()), *((one,) for one in drifts)]

    def begin(cell: Cell) -> AbstractContextManager[Child]:
        known = prepared.get(cell.name) or prepared[cell.repeated(0).name]
        named = replace(known, preset=Path(title).name)
        return start(named, home, turns=None if cell.treatment == NUDGED else blocks, timeout=timeout)

    done = conduct(planned, begin, blocks, tell)
    record = ComparisonRecord(
        id=new_id(),
        created=created,
        title=title,
        base=base,
        seeds=tuple(dict.fromkeys(cell.seed for cell in cells)),
        treatments=tuple(dict.fromkeys(cell.treatment for cell in cells if cell.treatment not in (BASELINE, AGAIN))),
        ending=done.ending,
        protocol=_protocol(blocks, len({cell.process for cell in cells}), needs),
        cells=tuple(one for one in done.cells if one.cell.treatment != NUDGED),
        nudged=tuple(one for one in done.cells if one.cell.treatment == NUDGED),
        rounds=tuple(one for one in done.rounds if one.order),
    )
    save(record, home)
    return record


def _protocol(blocks: int, processes: int, needs: Needs) -> Protocol:
    resident = needs.resident()
    note = needs.note(resident)
    return Protocol(
        blocks=blocks,
        processes=processes,
        resident=resident,
        needed_bytes=sum(needs.host) if needs.known else None,
        available_bytes=needs.available_bytes,
        notes=(note,) if note else (),
    )


def _ready(
    cells: Sequence[Cell], machine: Machine, home: Home, prepare: Progress
) -> tuple[list[Cell], dict[str, ReadyRun]]:
    """Check every treatment once; the seeds of one differ in nothing that could be found wrong."""
    for cell in cells:
        # All of them before the first is made ready, which writes the corpus down.
        check(cell.run, machine)
    # Its rates, so that step times can be predicted; measured once, then remembered.
    for threads in dict.fromkeys(threads_of(normalize(cell.run)) for cell in cells):
        measured_machine(home, threads, tell=lambda text: prepare(text, None))
    checked: dict[str, ReadyRun] = {}
    complete: list[Cell] = []
    found: dict[str, ReadyRun] = {}
    with leaving_nothing(cells[0].run, home):
        for cell in cells:
            if cell.treatment not in checked:
                checked[cell.treatment] = ready(cell.run, home, prepare)
    for cell in cells:
        known = checked[cell.treatment]
        run = known.run.model_copy(update={"seed": cell.seed})
        complete.append(cell.model_copy(update={"run": run}))
        found[cell.name] = replace(known, run=run)
    return complete, found
