"""An anatomy: time, FLOPs and bytes of a step as text, as a figure, and its operators as a trace for ui.perfetto.dev.

Slices nest by construction: a phase holds the modules whose operators follow one another, and these hold the operators.
A slice of a module begins with its first operator and ends with its last, so its gaps are the host's own time. The
bytes alive are a counter. Format: "Trace Event Format", phases X (a slice), C (a counter) and M (a name); times are in
microseconds.
"""

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.files import check_target, write_file
from assay.records.anatomy import BETWEEN, CLASSES, UPDATE, Anatomy, Operator, Sum
from assay.records.trace import OperationClass
from assay.report.kit.blocks import Block, Table
from assay.report.kit.drawing import LIGHT, SOFT, canvas, save, with_print_colours
from assay.report.kit.view import Shown, plain_record
from assay.report.run import proof
from assay.units import format_bytes, format_flops, format_seconds

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


class AnatomyView(Shown[Anatomy]):
    """The anatomy of a step, as a reader is shown it."""

    def blocks(self) -> Iterator[Block]:
        """Yield the two tables, a sentence on how the times were taken, and the proofs."""
        answer = self.found
        yield f"One step of {answer.title}"
        classes: dict[str, Sum] = {str(kind): one for kind, one in answer.by_class().items()}
        yield sums_table("class of operator", {**classes, "all": answer.whole}, answer.whole)
        yield sums_table("module", answer.by_module(), answer.whole)
        yield _caveat(answer)
        yield from map(proof, answer.evidence)

    def values(self) -> dict[str, Any]:
        """Return sums by class and module, then every part, for programs."""
        found = self.found
        return {
            "by_class": {kind: one.model_dump() for kind, one in found.by_class().items()},
            "by_module": {module: one.model_dump() for module, one in found.by_module().items()},
            "whole": found.whole.model_dump(),
            **plain_record(found),
        }

    def frame(self) -> "pandas.DataFrame":
        """Return a row per module, phase and class of operator."""
        import pandas

        return pandas.DataFrame([part.model_dump(mode="json") for part in self.found.parts])

    def figure(self, name: str = "") -> "Figure":
        """Return the figure: modules on the left, shares of the whole on the right."""
        anatomy = self.found
        modules = anatomy.by_module()
        with canvas(_WIDTH, 1.4 + 0.27 * len(modules), 2, gridspec_kw={"width_ratios": (3, 2)}) as (
            drawn,
            (left, right),
        ):
            drawn.suptitle(f"One step of {anatomy.title}" if anatomy.title else "One step", fontsize=10)
            _modules(left, anatomy)
            _shares(right, anatomy)
            shown = [kind for kind in CLASSES if kind in anatomy.by_class()]
            handles = [left.barh(0, 0, color=_COLOURS[kind], label=_TITLES[kind]) for kind in shown]
            drawn.legend(handles=handles, loc="outside lower center", ncols=len(shown), frameon=False)
            return with_print_colours(drawn)


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


Event = dict[str, Any]

_PLACE = {"pid": 1, "tid": 1}
_LEVEL = re.compile(r"[^.]+(?:\.\d+)?")
"""One level of a module's name; a list of modules and the number in it are one."""


def check_trace(path: Path) -> None:
    """Raise `UsageError` if the trace's format or folder is impossible, before anything is measured for it."""
    check_target(path, "trace", (".json", ".json.gz"))


def write_trace(anatomy: Anatomy, path: Path) -> None:
    """Write the trace, compressed if the name ends in .gz. Raises `StorageError`."""
    content = json.dumps(trace_of(anatomy), separators=(",", ":")).encode()
    write_file(path, gzip.compress(content, mtime=0) if path.name.endswith(".gz") else content)


def trace_of(anatomy: Anatomy) -> Event:
    """Return the trace of an anatomy that has operators."""
    names = [("process_name", anatomy.title or "one step"), ("thread_name", "operators")]
    events = [{"ph": "M", "name": kind, "args": {"name": name}, **_PLACE} for kind, name in names]
    events += _slices(anatomy.operators)
    events += [_counter(one, one.alive_bytes) for one in anatomy.operators if one.alive_bytes is not None]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "step_seconds": anatomy.step_seconds,
            "watched_seconds": anatomy.watched_seconds,
            "caveat": "times are those of a watched step, in which each operator is timed on its own",
        },
    }


def _slices(operators: tuple[Operator, ...]) -> Iterator[Event]:
    """Yield the slices of operators, and of the phases and modules around them."""
    around: list[tuple[str, float]] = []
    """Names of the open slices, and when they began."""
    end = 0.0
    for one in operators:
        path = _path(one)
        shared = len(list(takewhile(lambda pair: pair[0][0] == pair[1], zip(around, path, strict=False))))
        yield from _closed(around, shared, end)
        around += [(name, one.begin_seconds) for name in path[shared:]]
        end = one.begin_seconds + one.seconds
        facts = {"module": one.module, "class": one.operation_class, "FLOPs": one.flops, "bytes": one.bytes}
        yield {**_slice(one.name, one.operation_class, one.begin_seconds, end), "args": facts}
    yield from _closed(around, 0, end)


def _closed(around: list[tuple[str, float]], open_still: int, end: float) -> Iterator[Event]:
    """Close the innermost slices, and yield them, until so many are open."""
    while len(around) > open_still:
        name, begin = around.pop()
        yield _slice(name, "module" if around else "phase", begin, end)


def _path(one: Operator) -> list[str]:
    """Return the names of the slices around an operator, the outermost first."""
    return [one.phase, *([] if one.module in (BETWEEN, UPDATE) else _LEVEL.findall(one.module))]


def _slice(name: str, category: str, begin: float, end: float) -> Event:
    first, last = _microseconds(begin), _microseconds(end)
    return {"ph": "X", "name": name, "cat": category, "ts": first, "dur": round(last - first, 3), **_PLACE}


def _counter(one: Operator, alive_bytes: int) -> Event:
    """Return the bytes alive at the end of an operator."""
    end = _microseconds(one.begin_seconds + one.seconds)
    return {"ph": "C", "name": "memory", "ts": end, "args": {"bytes alive": alive_bytes}, **_PLACE}


def _microseconds(seconds: float) -> float:
    """Return microseconds with three decimals, so that slices that touch do not overlap by rounding."""
    return round(1e6 * seconds, 3)


_WIDTH = 10.0
_COLOURS = dict(zip(CLASSES, LIGHT[1:], strict=False))
_LEAST_LABELLED = 0.06
"""Smallest share of the whole for which a bar has room for its figure."""
_TITLES: dict[OperationClass, str] = {
    "contraction": "tensor contraction",
    "normalization": "statistical normalization",
    "elementwise": "element-wise",
    "movement": "data movement",
    "communication": "communication",
}


def drawable(path: Path) -> None:
    """Raise `UsageError` if the figure's format or folder is impossible, before anything is measured for it."""
    check_target(path, "figure", (".png", ".svg"))


def draw(anatomy: Anatomy, path: Path) -> None:
    """Write the figure as PNG or SVG, by the file's suffix."""
    save(AnatomyView(anatomy).figure(), path)


def _modules(axis: Any, anatomy: Anatomy) -> None:
    modules, divided = list(anatomy.by_module()), anatomy.by_module_and_class()
    for place, module in enumerate(modules):
        start = 0.0
        for kind in CLASSES:
            width = 1e3 * divided.get((module, kind), Sum()).seconds
            axis.barh(place, width, left=start, height=0.72, color=_COLOURS[kind], linewidth=0)
            start += width
    axis.set_xlim(0, 1050 * max(one.seconds for one in anatomy.by_module().values()))
    axis.set_yticks(range(len(modules)), modules)
    axis.set_ylim(len(modules) - 0.4, -0.6)
    axis.grid(axis="y", visible=False)
    axis.set(title="time in operators, by module", xlabel="milliseconds of one step")


def _shares(axis: Any, anatomy: Anatomy) -> None:
    """Draw time, FLOPs and bytes, each divided by class."""
    whole, classes = anatomy.whole, anatomy.by_class()
    for place, measure in enumerate(("seconds", "flops", "bytes")):
        start, total = 0.0, getattr(whole, measure) or 1
        for kind, one in classes.items():
            share = getattr(one, measure) / total
            axis.barh(place, 100 * share, left=start, height=0.6, color=_COLOURS[kind], linewidth=0)
            if share >= _LEAST_LABELLED:
                middle = start + 50 * share
                axis.text(middle, place, f"{share:.0%}", ha="center", va="center", color="white", fontsize=8)
            start += 100 * share
    axis.set_yticks(range(3), ("time", "FLOPs", "bytes"), color=SOFT)
    axis.set_ylim(2.6, -0.6)
    axis.set_xlim(0, 100)
    axis.grid(axis="y", visible=False)
    axis.set(title="shares of the whole, by class of operator", xlabel="%")
