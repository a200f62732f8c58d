"""Studies beside their results, and all of their views: the library, a plan, a state, one study on several machines.

The library has a list of all studies, and one with its table, its faults and its scales. A plan has rows with predicted
memory and time, and a state says how many cells ended and what failed. Machines have a column of changes each.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from assay.analysis.factors.layout import layout_of, names_of
from assay.analysis.factors.machines import Across, Machines
from assay.records.published import PublishedStudy
from assay.report.comparison.wording import change, plain
from assay.report.kit.blocks import UNKNOWN, Block, Facts, Table, amount
from assay.report.kit.view import Shown
from assay.report.study import predicted
from assay.report.study.sections.stated import document_facts, expectation_text, faults, number, printed_values
from assay.studies.execution.study_listing import StudyStanding
from assay.studies.library import LibraryEntry
from assay.studies.outlook import CellOutlook, Outlook, RowOutlook
from assay.studies.predicted import PredictedStudy
from assay.units import format_count, format_seconds

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.studies.base import Study


def library_report(entries: Iterable[LibraryEntry]) -> Iterator[Block]:
    """Yield a table of all studies."""
    columns = ("study", "kind", "rows", "question", "document")
    rows = ((one.name, one.study.kind, str(_rows(one.study)), one.study.question, _document(one)) for one in entries)
    yield Table.of(columns, rows, right=("rows",), spare=("document", "kind"))


def entry_report(entry: LibraryEntry) -> Iterator[Block]:
    """Yield one study: what it asks, its scales, its rows, the published table, and what was wrong with that."""
    study, published = entry.study, entry.study.published
    yield Facts.of([("question", study.question), ("kind", study.kind), ("base", study.base)])
    columns = ("scale", "rows", "seeds", "base", "overrides")
    scales = ((name, str(_rows(one)), str(one.seeds), one.base, " ".join(_settings(one))) for name, one in _all(entry))
    yield Table.of(columns, scales, right=("rows", "seeds"))
    yield from study.notes()
    if published is not None:
        yield document_facts(published)
        yield from _table(published)
        yield from (f"{one.name}: {one.note}" for one in published.columns if one.note)
        wrong = [f"– {one}" for one in faults(published)]
        yield from ("What was wrong with it:", *wrong) if wrong else ()
    yield from (
        ("What this study expects:", *(f"– {expectation_text(one)}" for one in study.expects)) if study.expects else ()
    )
    yield f"`assay study plan {entry.name}` and `assay study run {entry.name}` plan and run it."


def library_values(entry: LibraryEntry) -> dict[str, Any]:
    """Return one study as plain values for JSON."""
    study, published = entry.study, entry.study.published
    return {
        "name": entry.name,
        "kind": study.kind,
        "question": study.question,
        "scales": {
            name: {"rows": _rows(one), "seeds": one.seeds, "base": one.base, "overrides": _settings(one)}
            for name, one in _all(entry)
        },
        "expects": [one.model_dump(mode="json") for one in study.expects],
        "published": None if published is None else {**published.model_dump(mode="json"), **printed_values(published)},
    }


def _all(entry: LibraryEntry) -> "list[tuple[str, Study]]":
    return list(entry.scales.items())


def _rows(study: "Study") -> int:
    return sum(1 for _ in study.combinations())


def _settings(study: "Study") -> list[str]:
    """Return the overrides of the base, each key with the last value that it is given."""
    return list({one.partition("=")[0]: one for one in study.overrides}.values())


def _document(entry: LibraryEntry) -> str:
    return entry.study.published.document if entry.study.published else UNKNOWN


def _table(published: PublishedStudy) -> Iterator[Block]:
    if published.rows:
        columns = [one.name for one in published.columns]
        rows = (
            (row.name, *map(number, published.columns, row.figures), row.row or "not repeated")
            for row in published.rows
        )
        yield Table.of(("row of the document", *columns, "row here"), rows, right=columns, spare=("row here",))


def outlook_report(plan: Outlook, *, cells: bool = False) -> Iterator[Block]:
    """Yield the whole, a table of the rows, and sentences on the design and on rows that cannot run.

    `cells` adds a table of every cell.
    """
    yield Facts.of(_whole(plan))
    columns = ("configuration", "runs", "peak of tensors", "step", "one run", "remark")
    names = names_of(layout_of({one.label: one.levels for one in plan.rows}))
    yield Table.of(
        columns, (_row(one, names.get(one.label, one.label)) for one in plan.rows), right=columns[1:5], spare=("step",)
    )
    if cells:
        columns = ("run of", "seed", "repeat", "peak of tensors", "time", "remark")
        yield Table.of(columns, (_cell(one, names.get(one.name, one.name)) for one in plan.cells()), right=columns[1:5])
        if plan.drifts:
            yield f"Further runs of the baseline with nudged weights: {plan.drifts}."
    yield from plan.notes
    if not plan.timed:
        yield "The study measures losses and memory only, so no time is predicted."
    elif plan.seconds is None and any(row.problem is None and row.step_seconds is None for row in plan.rows):
        yield "Times are not predicted; --calibrate times steps of few blocks, and `assay machine` measures rates."


def _whole(plan: Outlook) -> Iterator[tuple[str, str]]:
    able = sum(row.problem is None for row in plan.rows)
    if plan.name:
        yield "study", plan.name
    if plan.question:
        yield "question", plan.question
    yield "kind", plan.kind
    yield "base", plan.base
    rows = f"{able}" if able == len(plan.rows) else f"{able} of {len(plan.rows)} can run"
    yield "configurations", f"{rows}, the control among them, which runs twice at each seed"
    yield "runs", f"{format_count(plan.processes)} over {plan.seeds} seed{'s' if plan.seeds > 1 else ''}"
    yield "time", UNKNOWN if plan.seconds is None else f"{format_seconds(plan.seconds)}, one run at a time"


def _row(row: RowOutlook, name: str) -> tuple[str, ...]:
    times = (UNKNOWN if one is None else format_seconds(one) for one in (row.step_seconds, row.seconds))
    remark = _condition(row.share)
    if row.problem is not None:
        remark = f"{'not here' if row.unavailable else 'not possible'}: {row.problem}"
    return name, str(row.processes), amount(row.peak_bytes), *times, remark


def _cell(one: CellOutlook, name: str) -> tuple[str, ...]:
    time = UNKNOWN if one.seconds is None else format_seconds(one.seconds)
    numbers = str(one.seed), str(one.process + 1)
    return name, *numbers, amount(one.peak_bytes), time, _condition(one.share)


def _condition(share: float) -> str:
    return "" if share == 1 else "if it goes on"


def standing_report(standing: StudyStanding) -> Iterator[Block]:
    """Yield the state, and a table of cells that did not end as they should."""
    study = standing.study
    facts = {
        "study": study.id,
        "name": study.name,
        "question": study.question,
        "kind": study.kind,
        "base": study.title,
        "status": study.status,
        "process": standing.process,
        "runs": f"{study.ended} of {study.cells} have ended",
        "of them": ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in standing.by_status.items()),
    }
    yield Facts.of((label, text) for label, text in facts.items() if text)
    if standing.problems:
        yield Table.of(("run of", "id", "problem"), standing.problems)
    if study.status not in ("complete", "running"):
        yield f"`assay study resume {study.id}` does the runs that have no result."


def machines_report(found: Machines) -> Iterator[Block]:
    """Yield the machines, a table of changes, and what its columns say."""
    letters = [chr(ord("A") + place) for place in range(len(found.names))]
    named = zip(letters, found.names, found.studies, strict=True)
    yield Facts.of((letter, f"study {study}" + ("" if name == study else f", {name}")) for letter, name, study in named)
    columns = ("row", "metric", *letters, "all", "machines")
    yield Table.of(columns, map(_across_row, found.rows), right=columns[2:-1])
    yield (
        "Changes are against the control of the same machine, with intervals in percent. Machines differ if the "
        "interval of the difference of two changes is free of zero. The change over all is the mean of logarithms."
    )
    for label, studies in found.missing.items():
        yield f"Not compared, because it is not in {', '.join(studies)}: {label}."


def machines_values(found: Machines) -> dict[str, Any]:
    """Return plain values for ``--json``; changes and intervals are fractions."""
    return {
        "studies": list(found.studies),
        "machines": list(found.names),
        "rows": [
            {
                "row": one.row,
                "metric": one.metric.name,
                "changes": list(map(plain, one.changes)),
                "all": plain(one.overall),
                "differ": one.differ,
            }
            for one in found.rows
        ],
        "missing": {label: list(studies) for label, studies in found.missing.items()},
    }


def _across_row(one: Across) -> tuple[str, ...]:
    told = {True: "differ", False: "not distinguishable", None: UNKNOWN}[one.differ]
    if one.differ is False and all(known is not None and not known.half for known in one.changes):
        told = "equal"
    return one.row, one.metric.title, *map(change, one.changes), change(one.overall), told


class LibraryView(Shown[Sequence[LibraryEntry]]):
    """The library of published studies, as a reader is shown it."""

    def blocks(self) -> Iterable[Block]:
        """Return a table of all studies."""
        return library_report(self.found)

    def values(self) -> list[Any]:
        """Return every study for programs."""
        return list(map(library_values, self.found))


class LibraryEntryView(Shown[LibraryEntry]):
    """One study of the library, as a reader is shown it."""

    def blocks(self) -> Iterable[Block]:
        """Return what it asks, its scales, its rows and its faults."""
        return entry_report(self.found)

    def values(self) -> dict[str, Any]:
        """Return the study for programs."""
        return library_values(self.found)


class OutlookView(Shown[Outlook]):
    """A study before it runs, as a reader is shown it; with `cells`, each of its cells."""

    def __init__(self, found: Outlook, *, cells: bool = False) -> None:
        super().__init__(found)
        self._cells = cells

    def blocks(self) -> Iterable[Block]:
        """Return the whole, a table of the rows, and what cannot run."""
        return outlook_report(self.found, cells=self._cells)

    def values(self) -> dict[str, Any]:
        """Return every row for programs."""
        return self.found.plain(cells=self._cells)


class StandingView(Shown[StudyStanding]):
    """The state of a study, as a reader is shown it."""

    def blocks(self) -> Iterable[Block]:
        """Return how far it has come, and the cells that did not end as they should."""
        return standing_report(self.found)

    def values(self) -> dict[str, Any]:
        """Return the state for programs."""
        return {**self.found._asdict(), "study": self.found.study._asdict()}


class MachinesView(Shown[Machines]):
    """One study on several machines, as a reader is shown it."""

    def blocks(self) -> Iterable[Block]:
        """Return a column of changes for each machine."""
        return machines_report(self.found)

    def values(self) -> dict[str, Any]:
        """Return every change for programs."""
        return machines_values(self.found)


class PredictedStudyView(Shown[PredictedStudy]):
    """A predicted study, as a reader is shown it."""

    def blocks(self) -> Iterable[Block]:
        """Return the rows, and their changes and deviations."""
        return predicted.predicted_study_report(self.found)

    def values(self) -> dict[str, Any]:
        """Return every row for programs."""
        return predicted.predicted_study_values(self.found)

    def frame(self) -> "pandas.DataFrame":
        """Return a line for each row: its levels, and every figure that is compared."""
        import pandas

        from assay.analysis.predicted_rows import COMPARED

        known = [(one.label, dict(one.levels), one.found) for one in self.found.named if one.found is not None]
        return pandas.DataFrame(
            {"row": label, **levels, **{one.name: one.of(found) for one in COMPARED}} for label, levels, found in known
        )

    def figure(self, name: str = "") -> "Figure | None":
        """Return heat maps of changes and of deviations by two factors; None for a comparison."""
        from assay.report.kit.drawing import together, with_print_colours

        drawn = together(predicted.maps(self.found))
        return None if drawn is None else with_print_colours(drawn)
