"""Exchange rates between loss and memory, and between loss and time."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analysis.choose.criteria import memory_metric
from assay.analysis.choose.ranking import LossExchange, Trade, exchanges
from assay.report.blocks import Block, Table
from assay.report.study.choices.wording import change, plain, time_title
from assay.report.study.section import Section

if TYPE_CHECKING:
    from assay.report.study.view import StudyView


def _content(study: "StudyView") -> Iterator[Block]:
    found, memory = study.of(exchanges), memory_metric(study.comparison).title
    if not any(one.memory.trade.priced or one.time.trade.priced for one in found):
        return
    columns = (
        "row",
        "loss",
        memory,
        f"loss for {memory}",
        time_title(study.comparison),
        f"loss for {time_title(study.comparison)}",
    )
    rows = [
        (one.row.treatment, change(one.loss), change(one.memory.resource), _said(one.memory),
         change(one.time.resource), _said(one.time))
        for one in found
    ]  # fmt: skip
    yield Table.of(columns, rows, right=(columns[1], columns[2], columns[4]), spare=(columns[2], columns[4]))
    yield (
        "A rate is the change of the validation loss in percent for each percent of memory or time. It is given where "
        "one gets better and the other worse, and where both changes can be told from zero. Its range covers every "
        "pair of values of the two intervals."
    )


def _said(one: LossExchange) -> str:
    if one.rate is None or one.interval is None:
        return one.trade.value
    ends = "" if one.interval[0] == one.interval[1] else f" [{one.interval[0]:.2g}, {one.interval[1]:.2g}]"
    if one.trade is Trade.SAVES_FOR_LOSS:
        return f"{one.rate:.2g} %{ends} worse for each 1 % saved"
    return f"{one.rate:.2g} %{ends} better for each 1 % more"


def _values(study: "StudyView") -> list[dict[str, Any]]:
    return [
        {"row": one.row.treatment, "loss": plain(one.loss), "memory": _plain(one.memory), "time": _plain(one.time)}
        for one in study.of(exchanges)
    ]


def _plain(one: LossExchange) -> dict[str, Any]:
    return {**one._asdict(), "trade": one.trade.value, "resource": plain(one.resource)}


SECTION = Section("exchange_rates", "Loss for memory, loss for time", _content, _values, printed=False)
