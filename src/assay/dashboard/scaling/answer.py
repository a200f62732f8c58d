"""The answer of a law to a budget: the best N and D, their loss with its interval, and time and money on devices."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from assay.api.optimal import FITTED, optimal
from assay.config.home import Home
from assay.dashboard.scaling.figures import losses_figure, sizes_figure
from assay.dashboard.scaling.own_laws import OwnLaw, law_of
from assay.dashboard.scaling.question import LawQuestion
from assay.report.kit.blocks import UNKNOWN, Block, Facts
from assay.report.optimal import OptimalView, interval, mark
from assay.report.plan import days
from assay.scaling.fitted import REFUSED
from assay.scaling.frontier import Optimum
from assay.scaling.optimal import LawAnswer
from assay.scaling.points import planned_points
from assay.units import format_count

_WHOLE = 100
"""Amount from which no decimals are shown."""


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
        yield "time", f"{days(one.bill.seconds)} on {where}"
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
