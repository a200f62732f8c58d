"""The smallest study: a baseline against some treatments, with paired seeds and interleaved cells."""

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
from assay.launch.prepare import ReadyRun, leaving_nothing, ready, threads_of
from assay.launch.rates import measured_machine
from assay.launch.spawn import start
from assay.optimizations import check, resolved
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
    """Measure the baseline twice and every treatment once in each process of each seed, and save the record.

    `processes` is the number of processes of each row at each seed; None takes as many as an interval needs. Raises as
    `measured`.
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
    """Measure the cells of a design, and save the record. `timeout` limits the working seconds of each cell.

    Raises `UsageError` for a fault of any cell before one is run, and `StorageError` if the disk refuses.
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
        base=resolved(base),
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
    """Check and prepare each treatment once, because its seeds cannot differ in validity; returns complete cells."""
    for cell in cells:
        # All cells are checked before the first is prepared, because preparing writes the corpus.
        check(cell.run, machine)
    # Step times are predicted from the machine's rates, which are measured once and then cached.
    for threads in dict.fromkeys(threads_of(resolved(cell.run)) for cell in cells):
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
