"""The view of a value, its page and its HTML: all that a reader is shown of it, made once for every place.

A view is looked up by the type of its value. It keeps what it has computed, so terminal, JSON, page, notebook and
dashboard share one answer.

A page has the table, the figures, the proofs, and how each number was made. It is self-contained and needs no network.
The template engine escapes all text from outside (names, reasons, a processor's own name). Only the figures, which are
made here, are inserted as they are. A notebook has its own style sheet and removes scripts, so its tables have inline
styles.
"""

import io
import json
from base64 import b64encode
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast, overload

from markupsafe import Markup, escape

from assay.errors import UsageError, short_text
from assay.files import write_file
from assay.report.kit.blocks import Block, Facts, Table

if TYPE_CHECKING:
    import pandas
    from jinja2 import Environment
    from matplotlib.figure import Figure
    from pydantic import BaseModel

    from assay.analysis.comparison import Comparison
    from assay.config.home import Home
    from assay.report.kit.drawing import Panel
    from assay.scaling.scaling_study import ScalingAnswer


Found = TypeVar("Found")
_VIEWS = {
    "absent.allocator_runs.AllocatorRuns": "allocators.AllocatorsView",
    "absent.largest.LargestFit": "absent.LargestView",
    "absent.ranks_answer.RanksAnswer": "absent.RanksView",
    "absent.script_answer.AbsentAnswer": "absent.AbsentView",
    "advise.advice.Advice": "recommend.AdviceView",
    "advise.placed.LayoutAdvice": "recommend.LayoutAdviceView",
    "analysis.accuracy.Accuracy": "accuracy.AccuracyView",
    "analysis.catalogue.Catalogue": "catalogue.CatalogueView",
    "analysis.comparison.Comparison": "study.view.view",
    "analysis.factors.machines.Machines": "studies.MachinesView",
    "analysis.step_ratio.GateTimes": "gate.GateTimesView",
    "config.mesh.Mesh": "mesh.MeshView",
    "estimator.capacity.Capacity": "capacity.CapacityView",
    "estimator.cost.TrainingCost": "cost.CostView",
    "estimator.every_rank.EveryRank": "estimate.EstimateView",
    "estimator.inference.Inference": "inference.InferenceView",
    "estimator.projection.Projection": "plan.PlanView",
    "fake.peak.GpuPeak": "gpu_peak.GpuPeakView",
    "launch.gate.GateAnswer": "gate.GateView",
    "launch.token_budget.TokenBudget": "token_budget.TokenBudgetView",
    "records.anatomy.Anatomy": "anatomy.AnatomyView",
    "records.gradients.GradientProbe": "gradients.GradientsView",
    "records.own.OwnStep": "measure.OwnStepView",
    "records.own.TracedPeak": "estimate.TracedView",
    "records.run.RunResult": "run.RunView",
    "scaling.approaches.Envelope": "frontiers.EnvelopeView",
    "scaling.approaches.IsoFlop": "frontiers.IsoFlopView",
    "scaling.batch.Batching": "batch.BatchView",
    "scaling.branch_saving.BranchSaving": "saved_work.BranchSavingView",
    "scaling.fitted.FittedLaw": "laws.FitView",
    "scaling.fitted.Prediction": "predicted_loss.PredictedLossView",
    "scaling.optimal.Growths": "optimal.GrowthView",
    "scaling.optimal.LawAnswers": "optimal.OptimalView",
    "scaling.scaling_study.ScalingAnswer": "scaling_study_view.ScalingView",
    "studies.execution.study_listing.StudyStanding": "studies.StandingView",
    "studies.isoflop_plan.ScalingPlan": "scaling_study.ScalingPlanView",
    "studies.library.LibraryEntry": "studies.LibraryEntryView",
    "studies.outlook.Outlook": "studies.OutlookView",
    "studies.predicted.PredictedStudy": "studies.PredictedStudyView",
}
"""View of each type of `assay`, in a module of `assay.report`. Names, so that nothing is loaded that is not shown."""


class Shown(Generic[Found]):
    """The report, the JSON, the figure and the table of a value."""

    def __init__(self, found: Found) -> None:
        self.found = found

    def blocks(self) -> Iterable[Block]:
        """Return the whole report, as a terminal and a notebook show it."""
        raise NotImplementedError

    def values(self) -> Any:
        """Return plain values for JSON."""
        raise NotImplementedError

    def figure(self, name: str = "") -> "Figure | None":
        """Return the main figure, or another one by its name; None if there is nothing to draw."""
        return None

    def frame(self) -> "pandas.DataFrame":
        """Return the figures as a table for a notebook."""
        raise NotImplementedError


def plain_record(record: "BaseModel") -> Any:
    """Return a record as values that JSON can express."""
    return json.loads(record.model_dump_json())


class View(Shown[Any]):
    """The result of a study, as a reader is shown it."""

    comparison: "Comparison"
    table: "Comparison | None" = None
    """The rows that a terminal shows as a table above the rest; None if the report has its own."""

    def printed(self) -> Iterable[Block]:
        """Return what a terminal prints below the table."""
        raise NotImplementedError

    def closing(self) -> Iterator[tuple[str, str]]:
        """Yield label and text of the last lines."""
        raise NotImplementedError

    def page(self) -> tuple[str, dict[str, Any]]:
        """Return the name of the page's template, and its content."""
        raise NotImplementedError

    def frame(self) -> "pandas.DataFrame":
        """Return a row per treatment."""
        return self.comparison.to_frame()


class Result:
    """A value that shows itself to the program or notebook that holds it."""

    @classmethod
    def from_value(cls, value: Any, **more: Any) -> Self:
        """Return a value of a domain as a result of this kind, with fields of its own."""
        from pydantic import BaseModel

        if isinstance(value, BaseModel):
            return cast(Self, cast(Any, cls).model_construct(value.model_fields_set, **dict(value), **more))
        made = cls.__new__(cls)
        vars(made).update(vars(value), **more)
        return made

    def view(self) -> Shown[Any]:
        """Return what a reader is shown of it."""
        return _by_type(self)

    def report(self) -> Iterable[Block]:
        """Return the report as `assay` prints it."""
        return self.view().blocks()

    def plot(self) -> "Figure | None":
        """Return the figure; None if there is nothing to draw."""
        return self.view().figure()

    def to_frame(self) -> "pandas.DataFrame":
        """Return the figures as a data frame."""
        return self.view().frame()

    def to_dict(self) -> Any:
        """Return the figures as plain values, as `--json` prints them."""
        return self.view().values()

    def _repr_html_(self) -> str:
        return html(self.report(), self.plot())


@overload
def view(value: "View | Comparison | ScalingAnswer") -> View: ...
@overload
def view(value: Any) -> Shown[Any]: ...
def view(value: Any) -> Shown[Any]:
    """Return the view of a value, and a view as it is. Raises `TypeError` for a value that has none."""
    if isinstance(value, Shown):
        return value
    return value.view() if isinstance(value, Result) else _by_type(value)


def _by_type(value: Any) -> Shown[Any]:
    for one in type(value).__mro__:
        if name := _VIEWS.get(f"{one.__module__}.{one.__qualname__}".removeprefix("assay.")):
            module, _, made = name.rpartition(".")
            found: Shown[Any] = getattr(import_module(f"assay.report.{module}"), made)(value)
            return found
    raise TypeError(f"a {type(value).__name__} has no view")


_FIRST = b"<!doctype html>"
"""Start of every page."""


def write_page(result: "Comparison | View", home: "Home", path: Path | None = None) -> Path:
    """Write the page to `path`, or to `index.html` in the folder of the comparison's record; whole or not at all.

    Beside it is the page's data (`report.comparison.page.write_data`). Names of its files begin with that of `path`,
    because other files may be there. Returns the page's path. Raises `UsageError` as `check_page`, and `StorageError`.
    """
    from assay.report.comparison.page import write_data

    answer = view(result)
    if path is None:
        path, prefix = home.reports / answer.comparison.record.id / "index.html", ""
    else:
        check_page(path)
        prefix = f"{path.stem}-"
    write_data(answer, path.parent, prefix)
    write_file(path, render(answer).encode())
    return path.absolute()


def check_page(path: Path, begins: bytes = _FIRST) -> None:
    """Raise `UsageError` if a page cannot be written to a path, or would replace a file that is no page.

    A page `begins` with these bytes, in any case of letters; a report of another form has others.
    """
    named = f"--page {short_text(str(path))}"
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{named} is not a file; name a file that ends in .html")
        existed = path.exists()
        with path.open("ab+") as file:
            file.seek(0)
            first = file.read(len(begins))
        if not existed:
            path.unlink()
        elif first and first.lower() != begins.lower():
            raise UsageError(f"{named} is a file that is no page, and would be replaced; name another file")
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{named} cannot be written ({reason}); name a file in a folder that can be written") from None


def render(result: "Comparison | View") -> str:
    """Return the page as text; a study of scaling has a page of its own."""
    name, content = view(result).page()
    return render_template(name, **content)


def render_template(name: str, **content: Any) -> str:
    """Return a page as text: the template of this name, with its content escaped."""
    return _templates().get_template(name).render(content)


def _templates() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("assay.report.kit"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["breakable"] = breakable
    templates.filters["no_break"] = no_break
    templates.globals["script"] = Markup(page_script())
    return templates


def page_script() -> str:
    """Return the one script of a page: contents that follow, and figures as files. A page is whole without it."""
    return (Path(__file__).parent / "templates" / "page.js").read_text().strip()


def breakable(name: str) -> Markup:
    """Return a name that may be broken after each ``+``, ``:`` and ``=``."""
    text = str(escape(name))
    for joint in "+:=":
        text = text.replace(joint, f"{joint}<wbr>")
    return Markup(text)


def no_break(text: str) -> str:
    """Return a sentence whose numbers stay on the line of their sign."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%").replace(" ×", "\N{NO-BREAK SPACE}×")


def inline(heading: str, panels: "Iterable[Panel]") -> list[dict[str, Markup]]:
    """Return panels with their titles and SVG elements; readers who cannot see them are told heading and title."""
    from assay.report.kit.drawing import alone, svg

    return [
        {"title": breakable(one.title), "svg": Markup(svg(alone(one), f"{heading}: {one.title}"))} for one in panels
    ]


_LEFT, _RIGHT = Markup('style="text-align:left"'), Markup('style="text-align:right"')


def html(blocks: Iterable[Block], *figures: "Figure | None") -> str:
    """Return blocks and figures, one below the other, as HTML."""
    drawn = [_image(figure) for figure in figures if figure is not None]
    return str(Markup("\n").join([*map(_block, blocks), *drawn]))


def _block(block: Block) -> Markup:
    if isinstance(block, Table):
        return _table(block.columns, block.rows, block.right)
    if isinstance(block, Facts):
        return _table((), block.rows, frozenset())
    tag = "pre" if "  " in block else "p"  # a drawing is aligned with spaces
    return Markup(f"<{tag}>{{}}</{tag}>").format(block) if block else Markup()


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], right: Iterable[str]) -> Markup:
    aligned = [_RIGHT if column in right else _LEFT for column in columns]
    head = [_row("th", columns, aligned)] if columns else []
    body = [_row("td", row, aligned or [_LEFT] * len(row)) for row in rows]
    return Markup("<table>{}</table>").format(Markup("").join(head + body))


def _row(tag: str, cells: Iterable[str], aligned: Iterable[Markup]) -> Markup:
    made = [Markup(f"<{tag} {{}}>{{}}</{tag}>").format(style, cell) for cell, style in zip(cells, aligned, strict=True)]
    return Markup("<tr>{}</tr>").format(Markup("").join(made))


def _image(figure: "Figure") -> Markup:
    from assay.report.kit.drawing import drawing_style

    stream = io.BytesIO()
    with drawing_style():
        figure.savefig(stream, format="png", dpi=110)
    return Markup('<img src="data:image/png;base64,{}">').format(b64encode(stream.getvalue()).decode())
