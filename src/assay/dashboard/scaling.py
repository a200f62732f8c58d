"""The view *Scaling*: the best size and data for a budget, under published laws and those of the home's points.

An address has a question: a law, a budget of FLOPs, and the devices that should spend it. The answer has the best N and
D, their loss with its interval, and time and money on devices. Figures are plain numbers: the best size by compute
under each law, and the loss by size at a compute.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from shlex import quote
from typing import Any
from urllib.parse import urlencode

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from assay.api.optimal import FITTED, optimal
from assay.config.home import Home
from assay.dashboard.own_laws import POINTS, STUDY, Budget, OwnLaw, faults, files, law_of, studies
from assay.dashboard.pages import page, render_page
from assay.errors import UsageError, among, short_text
from assay.estimator.cost import USUAL_MFU
from assay.hardware.devices import DEVICES
from assay.report.kit.blocks import UNKNOWN, Block, Facts
from assay.report.optimal import OptimalView, interval, mark
from assay.scaling.fitted import REFUSED
from assay.scaling.frontier import Frontier, LossLaw, Optimum, minimum
from assay.scaling.optimal import LawAnswer, LawAnswers
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN, Accounting, planned_points
from assay.scaling.published import FRONTIERS, Line
from assay.units import format_count, format_power, format_seconds, parse_count

LEAST_POWER, MOST_POWER = 9, 27
"""Powers of ten of the budgets that the slider reaches."""
_WHOLE = 100
"""Amount from which no decimals are shown."""
_AROUND = 30.0
"""Largest factor from the optimum to the sizes of a curve of losses."""


@dataclass(frozen=True)
class LawQuestion:
    """A budget, the law that is asked, and the devices of the bill."""

    law: str = "Besiroglu"
    """A published law, `study:` with the id of a study, or `points:` with the name of a file."""
    flops: float = 1e21
    device: str = "h100"
    devices: int = 8
    mfu: float = USUAL_MFU
    price: float | None = None
    """Money for an hour of one device."""

    @property
    def own(self) -> bool:
        """True if the law is fitted to points of the home."""
        return self.law.startswith((STUDY, POINTS))

    @property
    def query(self) -> str:
        """The question as the query of an address, without whatever is the default."""
        defaults = LawQuestion()
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        given = {name: one for name, one in values.items() if one != getattr(defaults, name)}
        return urlencode(
            {name: f"{one:.10g}".replace("e+", "e") if isinstance(one, float) else one for name, one in given.items()}
        )

    @property
    def budget(self) -> str:
        """The FLOPs as a reader writes them, such as ``1.2e21``."""
        return f"{self.flops:.4g}".replace("e+", "e")

    def command(self, home: Home) -> str:
        """Return the command that answers it."""
        points = f" --points {quote(self._source(home))}" if self.own else ""
        where = f" --device {self.device} --devices {self.devices} --mfu {self.mfu:g}"
        price = "" if self.price is None else f" --price {self.price:g}"
        return f"assay scaling optimal --flops {self.budget}{points}{where}{price}"

    def _source(self, home: Home) -> str:
        """Return the study or the file of an own law, as a command names it."""
        if self.law.startswith(STUDY):
            return self.law.removeprefix(STUDY)
        return str(home.points / self.law.removeprefix(POINTS))


def read(query: Mapping[str, str]) -> LawQuestion:
    """Return the question of an address. Raises `UsageError` for an unknown name and for an impossible number."""
    defaults = LawQuestion()
    law = query.get("law") or defaults.law
    if law not in FRONTIERS and not law.startswith((STUDY, POINTS)):
        raise UsageError(f"there is no law {short_text(law)}{among(law, FRONTIERS)}")
    device = query.get("device") or defaults.device
    if device not in DEVICES:
        raise UsageError(f"there is no device {short_text(device)}{among(device, DEVICES)}")
    devices = _number("devices", query.get("devices"), 1, 1e6) or defaults.devices
    return LawQuestion(
        law=law,
        flops=_number("FLOPs", query.get("flops"), 10.0**LEAST_POWER, 10.0**MOST_POWER) or defaults.flops,
        device=device,
        devices=int(devices),
        mfu=_number("MFU", query.get("mfu"), 1e-3, 1.0) or defaults.mfu,
        price=_number("price", query.get("price"), 0.0, 1e6),
    )


def _number(name: str, text: str | None, least: float, most: float) -> float | None:
    """Return a number of an address; None if it is not there. Raises `UsageError`."""
    if text is None or not text.strip():
        return None
    try:
        value = parse_count(text[:40])
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise UsageError(f"{name}={short_text(text)} is not possible; give a number from {least:g} to {most:g}")
    return value


@dataclass(frozen=True)
class LawPage:
    """Answer to a question about a law."""

    question: LawQuestion
    facts: Facts
    """The figures of the chosen law."""
    report: tuple[Block, ...]
    """All laws side by side, with what they rest on."""
    sizes: dict[str, Any]
    losses: dict[str, Any] | None
    """None for a law that states no loss."""


def answer(question: LawQuestion, home: Home) -> LawPage:
    """Return the answer to a question.

    Raises `UsageError` if the points of a study or file determine no law, and if every law refuses the budget.
    """
    own = law_of(question.law, home) if question.own else None
    found = optimal(
        flops=question.flops,
        points=None if own is None else own.frontier,
        device=question.device,
        devices=question.devices,
        mfu=question.mfu,
        price=question.price,
    )
    chosen = question.law if own is None else FITTED
    one = found.answers[chosen]
    law = one.frontier.law
    return LawPage(
        question=question,
        facts=Facts.of(_facts(question, one, own)),
        report=tuple(OptimalView(found).blocks()),
        sizes=sizes_figure(found, chosen),
        losses=None if law is None else losses_figure(law, one.frontier.accounting, question.flops, own),
    )


def _facts(question: LawQuestion, one: LawAnswer, own: OwnLaw | None) -> Iterator[tuple[str, str]]:
    best = one.optimum
    if best is None:
        yield "refused", f"the budget is more than {REFUSED:,.0f} times that of the largest run behind this law"
        return
    yield "parameters, N", _with_interval(best.parameters, one, "parameters")
    yield "tokens, D", _with_interval(best.tokens, one, "tokens")
    yield "tokens per parameter", f"{best.tokens_per_parameter:.3g}"
    yield "loss", _loss(best, own)
    if one.bill is not None:
        where = f"{question.devices:,} × {one.bill.device.name} at {question.mfu:.0%} of the peak".replace("%", " %")
        yield "time", f"{format_seconds(one.bill.seconds)} on {where}"
        if one.bill.money is not None:
            yield "money", f"{_plain(one.bill.money)}, in the unit of the price"
        if one.bill.kilowatt_hours is not None:
            yield "energy", f"{_plain(one.bill.kilowatt_hours)} kWh of the boards"
    if one.far:
        yield "caution", mark(one.beyond)[2:]


def _with_interval(value: float, one: LawAnswer, name: Any) -> str:
    ends = interval(one.intervals.get(name), one.frontier, format_count)
    return format_count(value) if ends == UNKNOWN else f"{format_count(value)}, {ends}"


def _plain(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= _WHOLE else f"{amount:.3g}"


def _loss(best: Optimum, own: OwnLaw | None) -> str:
    """Return the loss of an optimum, with the interval of a new run where the law was fitted here."""
    if best.loss is None:
        return "this law states no loss"
    if own is None:
        return f"{best.loss:.3f} nats per token; no interval is published"
    found = own.law.predict(planned_points(parameters=best.parameters, tokens=best.tokens), far=True)
    return f"{best.loss:.3f}, {float(found.low[0]):.3f} to {float(found.high[0]):.3f} nats per token (95 %)"


def sizes_figure(found: LawAnswers, chosen: str) -> dict[str, Any]:
    """Return the best N by compute: a line for each law, its end of fitted runs, and the answers of the budget.

    A law that is drawn through the rows of a published table has these as well.
    """
    lines = []
    for name, one in found.answers.items():
        best = one.optimum
        line = {"name": name, "chosen": name == chosen, "most": one.frontier.reach.most, **_line(name, one.frontier)}
        line["rows"] = _rows(one.frontier)
        lines.append({**line, "best": None if best is None else [best.flops, best.parameters]})
    return {"lines": lines}


def losses_figure(law: LossLaw, accounting: Accounting, flops: float, own: OwnLaw | None) -> dict[str, Any]:
    """Return the loss by N at the budget, and at each budget of the home's own points with its runs.

    FLOPs are as the points of the law count them.
    """
    asked = _losses(law, accounting, flops)
    curves = [{"name": f"{format_power(flops)} FLOPs", "asked": True, **asked, "runs": []}]
    best = minimum(law, accounting).at(flops)
    curves[0]["best"] = [best.parameters, best.loss]
    if own is not None:
        curves += [_budget(law, accounting, one) for one in own.budgets]
    return {"curves": curves}


def _budget(law: LossLaw, accounting: Accounting, one: Budget) -> dict[str, Any]:
    runs = [list(run) for run in one.runs]
    return {"name": one.name, "asked": False, **_losses(law, accounting, one.flops), "runs": runs}


def _losses(law: LossLaw, accounting: Accounting, flops: float) -> dict[str, Any]:
    best = minimum(law, accounting).at(flops).parameters
    sizes = np.geomspace(best / _AROUND, best * _AROUND, 61)
    losses = law.loss(sizes, accounting.tokens(sizes, flops))
    return {"x": sizes.tolist(), "y": losses.tolist(), "texts": list(map(format_count, sizes))}


def _rows(law: Frontier) -> list[list[float]]:
    """Return the published optima through which a law is drawn, as training FLOPs and N; none for other laws."""
    rows = law.curve.rows if isinstance(law.curve, Line) else ()
    return [[FLOPS_PER_PARAMETER_AND_TOKEN * parameters * tokens, parameters] for parameters, tokens in rows]


def _line(name: str, law: Frontier) -> Mapping[str, list[float]]:
    return _published(name) if name in FRONTIERS else _sizes(law)


@cache
def _published(name: str) -> Mapping[str, list[float]]:
    return _sizes(FRONTIERS[name])


def _sizes(law: Frontier) -> Mapping[str, list[float]]:
    compute = np.geomspace(10.0**LEAST_POWER, 10.0**MOST_POWER, 73)
    return {"x": compute.tolist(), "y": [law.at(float(one)).parameters for one in compute]}


def _view(request: Request) -> Response:
    """The page: its form and the answer, so that it serves a browser without scripts too."""
    home = request.app.state.home
    named = [(f"{STUDY}{one}", title) for one, title in studies(home).items()]
    question, found, refusal = _asked(request)
    return page(
        request,
        "scaling.html",
        question=question,
        laws=list(FRONTIERS),
        own=[("studies of this home", named), ("files of points", [(f"{POINTS}{one}", one) for one in files(home)])],
        devices=[(name, one.name) for name, one in DEVICES.items()],
        powers=(LEAST_POWER, MOST_POWER),
        figures=_figures(found),
        folder=home.points,
        faults=faults(home),
        **_content(question, found, refusal, home),
    )


def _answered(request: Request) -> Response:
    """An answer for the page's script; a question that is not possible is answered by its sentence."""
    question, found, refusal = _asked(request)
    html = render_page("scaling-answer.html", **_content(question, found, refusal, request.app.state.home))
    rows = dict(found.facts.rows) if found else {}
    said = f"N {rows['parameters, N']}, D {rows['tokens, D']}." if "tokens, D" in rows else refusal
    return JSONResponse({"query": question.query if found else None, "html": html, "said": said, **_figures(found)})


def _asked(request: Request) -> tuple[LawQuestion, LawPage | None, str]:
    """Return the question of an address, its answer, and the sentence if there is none."""
    question = LawQuestion()
    try:
        question = read(request.query_params)
        return question, answer(question, request.app.state.home), ""
    except UsageError as reason:
        return question, None, str(reason)


def _content(question: LawQuestion, found: LawPage | None, refusal: str, home: Home) -> dict[str, Any]:
    report = () if found is None else found.report
    return {
        "refusal": refusal,
        "facts": None if found is None else found.facts,
        "report": report,
        "command": question.command(home),
    }


def _figures(found: LawPage | None) -> dict[str, Any]:
    return {"sizes": None, "losses": None} if found is None else {"sizes": found.sizes, "losses": found.losses}


routes: list[Route] = [Route("/scaling", _view), Route("/scaling/answer", _answered)]
"""Addresses of the view."""
