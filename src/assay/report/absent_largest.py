"""The answer of `assay absent --largest` as plain rows: the number, its run, and all that were tried."""

from collections.abc import Iterator

from assay.absent.largest import MOST, LargestFit
from assay.report.absent import absent_report
from assay.report.blocks import Block, Table
from assay.units import format_bytes


def largest_report(found: LargestFit) -> Iterator[Block]:
    """Yield the parts of the answer."""
    yield _headline(found)
    shown = found.best or found.undecided
    if shown is not None:
        yield from absent_report(shown.answer)
    if len(found.probes) > 1:
        yield _probes(found)


def _headline(found: LargestFit) -> str:
    device = found.probes[0].answer.device.name
    if found.undecided is not None:
        return f"The largest number is not known: with {found.undecided.number}, nobody can tell whether it fits."
    if found.best is None:
        return f"Even 1 does not fit one {device}."
    if found.best.number == MOST:
        return f"{MOST:,} fits one {device}, and no larger number was tried: does it change the script's memory?"
    return f"The largest number that fits one {device} is {found.best.number}."


def _probes(found: LargestFit) -> Table:
    rows = (
        (str(one.number), one.answer.fit.words, format_bytes(one.in_use_bytes) if one.fits else "")
        for one in sorted(found.probes, key=lambda one: one.number)
    )
    columns = ("number", "", "in use, at most")
    return Table.of(columns, rows, right=(columns[0], columns[2]))
