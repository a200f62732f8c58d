"""An anatomy as text: time, FLOPs and bytes of a step, by class of operator and by module."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from assay.report.blocks import Block, Table
from assay.report.run import proof
from assay.units import format_bytes, format_flops, format_seconds

if TYPE_CHECKING:
    from assay.records.anatomy import Anatomy, Sum


def anatomy_report(answer: "Anatomy") -> Iterator[Block]:
    """Yield the two tables, a sentence on how the times were taken, and the proofs."""
    yield f"One step of {answer.title}"
    classes: dict[str, Sum] = {str(kind): one for kind, one in answer.by_class().items()}
    yield sums_table("class of operator", {**classes, "all": answer.whole}, answer.whole)
    yield sums_table("module", answer.by_module(), answer.whole)
    yield _caveat(answer)
    yield from map(proof, answer.evidence)


def sums_table(title: str, sums: "Mapping[str, Sum]", whole: "Sum") -> Table:
    """Return a table of sums by name: time, FLOPs, bytes and operators, and their shares of `whole`."""
    columns = (title, "time", "of time", "FLOPs", "of FLOPs", "bytes", "of bytes", "operators")
    rows = [(name, *_figures(one, whole)) for name, one in sums.items()]
    return Table.of(columns, rows, columns[1:], spare=("of bytes", "of FLOPs", "operators"))


def _figures(one: "Sum", whole: "Sum") -> Iterator[str]:
    yield format_seconds(one.seconds)
    yield f"{one.seconds / whole.seconds:.1%}"
    yield format_flops(one.flops) if one.flops else "–"
    yield f"{one.flops / whole.flops:.1%}" if whole.flops else "–"
    yield format_bytes(one.bytes)
    yield f"{one.bytes / whole.bytes:.1%}"
    yield str(one.count)


def _caveat(answer: "Anatomy") -> str:
    inside, unwatched = format_seconds(answer.whole.seconds), format_seconds(answer.step_seconds)
    return (
        f"Operators took {inside} in total, each timed on its own. The step took {unwatched} without instruments and "
        f"{format_seconds(answer.watched_seconds)} with them. FLOPs are those of contractions; bytes are the least "
        "that an operator can move."
    )
