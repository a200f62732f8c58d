"""The library of published studies: the list of all, and one with its table, its faults and its scales."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from assay.records.published import PublishedStudy
from assay.report.kit.blocks import UNKNOWN, Block, Facts, Table
from assay.report.study.sections.stated import document_facts, expectation_text, faults, number, printed_values

if TYPE_CHECKING:
    from assay.studies.base import Study
    from assay.studies.library import LibraryEntry


def library_report(entries: "Iterable[LibraryEntry]") -> Iterator[Block]:
    """Yield a table of all studies."""
    columns = ("study", "kind", "rows", "question", "document")
    rows = ((one.name, one.study.kind, str(_rows(one.study)), one.study.question, _document(one)) for one in entries)
    yield Table.of(columns, rows, right=("rows",), spare=("document", "kind"))


def entry_report(entry: "LibraryEntry") -> Iterator[Block]:
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


def values(entry: "LibraryEntry") -> dict[str, Any]:
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


def _all(entry: "LibraryEntry") -> "list[tuple[str, Study]]":
    return list(entry.scales.items())


def _rows(study: "Study") -> int:
    return sum(1 for _ in study.combinations())


def _settings(study: "Study") -> list[str]:
    """Return the overrides of the base, each key with the last value that it is given."""
    return list({one.partition("=")[0]: one for one in study.overrides}.values())


def _document(entry: "LibraryEntry") -> str:
    return entry.study.published.document if entry.study.published else UNKNOWN


def _table(published: PublishedStudy) -> Iterator[Block]:
    if published.rows:
        columns = [one.name for one in published.columns]
        rows = (
            (row.name, *map(number, published.columns, row.figures), row.row or "not repeated")
            for row in published.rows
        )
        yield Table.of(("row of the document", *columns, "row here"), rows, right=columns, spare=("row here",))
