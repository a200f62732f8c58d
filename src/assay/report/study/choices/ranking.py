"""Rankings of the rows: by the study's weights, and by a published formula."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analysis.choose.ranking import FormulaRanking, Ranked, RowRanking, formula_ranking, ranking
from assay.analysis.metrics import metrics
from assay.records.study import BASELINE
from assay.report.blocks import Block, Table
from assay.report.study.choices.wording import names
from assay.report.study.section import Section

if TYPE_CHECKING:
    from assay.report.study.view import StudyView


def _content(study: "StudyView") -> Iterator[Block]:
    if (own := study.of(ranking)) is not None:
        yield from _weighted(own, study.comparison.record.context)
    if (formula := study.of(formula_ranking)) is not None:
        yield from _published(formula)
    elif stated := study.comparison.record.ranking:
        yield f"The formula {stated} needs a loss, a time and a memory of every row; one is missing."


def _weighted(own: RowRanking, context: tuple[str, ...]) -> Iterator[Block]:
    columns = ("rank", "row", "score", "interval")
    yield Table.of(columns, map(_row, own.rows), right=("rank", "score"))
    known = metrics()
    said = ", ".join(
        f"{known[name].title if name in known else name} {100 * weight:.0f} %" for name, weight in own.weights.items()
    )
    yield (
        f"The score is the weighted geometric mean of a row's improvements over the control ({said}): 1.10 is 10 % "
        "better. Each improvement is a ratio to the control's figure, so units do not matter. A rank such as 1–3 "
        "means that chance decides between them."
    )
    if context:
        yield f"Rows are ranked at each level of {names(context)}, against the control there."
    if any(one.interval is None for one in own.rows):
        yield "Rows without an interval have too few seeds or processes, and share a rank with all others."
    if own.unranked:
        yield f"Not ranked, for want of a figure: {names(own.unranked)}."


def _row(one: Ranked) -> tuple[str, ...]:
    rank = f"{one.best}" if one.best == one.worst else f"{one.best}–{one.worst}"
    ends = (
        ""
        if one.interval is None or one.row.treatment == BASELINE or one.interval == (1.0, 1.0)
        else f"[{one.interval[0]:.3f}, {one.interval[1]:.3f}]"
    )
    return rank, one.row.treatment, f"{one.score:.3f}", ends


def _published(found: FormulaRanking) -> Iterator[Block]:
    rows = ((str(rank), name, f"{score:.3f}".replace("-", "−")) for rank, (name, score) in enumerate(found.scores, 1))
    yield f"{found.formula.source}: {found.formula.text}."
    yield Table.of(("rank", "row", "figure"), rows, right=("rank", "figure"))
    yield found.formula.flaw


def _values(study: "StudyView") -> dict[str, Any]:
    own, formula = study.of(ranking), study.of(formula_ranking)
    rows = [{**one._asdict(), "row": one.row.treatment} for one in own.rows] if own else []
    return {
        "weights": dict(own.weights) if own else {},
        "rows": rows,
        "unranked": list(own.unranked) if own else [],
        "formula": study.comparison.record.ranking,
        "by_formula": [{"row": name, "figure": score} for name, score in formula.scores] if formula else [],
    }


SECTION = Section("ranking", "Ranking", _content, _values)
