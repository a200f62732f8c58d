"""The best size and data by scaling laws, and how they grow with compute, as text, values and a figure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.report.kit.blocks import Block, Table
from assay.report.kit.drawing import canvas, marker, plain_numbers, series, with_print_colours
from assay.report.kit.view import Shown
from assay.scaling.optimal import Growths, LawAnswers
from assay.units import finite, format_count, format_seconds

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.scaling.frontier import Frontier
    from assay.scaling.optimal import Growth, LawAnswer, OtherSize, Quantity
    from assay.scaling.points import Accounting

_UNITS: "Mapping[Quantity, str]" = {"parameters": "parameters", "tokens": "tokens", "flops": "FLOPs"}


class OptimalView(Shown[LawAnswers]):
    """The best size and data by each law, as a reader is shown them."""

    def blocks(self) -> Iterator[Block]:
        """Yield a row for each law, the further answers, and how the laws count."""
        found = self.found
        interval = _interval_of(found)
        columns = (
            "law",
            "parameters",
            "tokens",
            "tokens per parameter",
            "FLOPs",
            "loss",
            f"{interval}, interval",
            "beyond",
        )
        yield Table.of(columns, (_optimal_row(one, interval) for one in found.answers.values()), columns[1:-1])
        yield from warnings(found.answers)
        yield from _refusals(found)
        if found.tokens_per_parameter is not None:
            yield from _overtrained(found, found.tokens_per_parameter)
        if found.inference_tokens is not None:
            yield from _served(found, found.inference_tokens)
        yield from _texts(found)
        if any(one.bill is not None for one in found.answers.values()):
            yield from _bills(found)
        yield from sources(found.answers)
        yield "Losses of different papers cannot be compared: each is of its own text and tokenizer. C = 6·N·D."

    def frame(self) -> "pandas.DataFrame":
        """Return a row per law, indexed by `law`; figures of a refused answer are missing."""
        return _frame(self.values())

    def values(self) -> dict[str, Any]:
        """Return the figures of every law for programs; those of a refused answer are null."""
        found = self.found
        return {name: _optimum_values(one) for name, one in found.answers.items()}

    def figure(self, name: str = "") -> "Figure | None":
        """Return the figure; None if every answer is refused."""
        found = self.found
        answers = [one for one in found.answers.values() if one.optimum is not None]
        if not answers:
            return None
        ends = min(one.flops for one in answers) / _AROUND, max(one.flops for one in answers) * _AROUND
        compute = np.geomspace(*ends, 30)
        with canvas(6.5, 4.2, 1) as (drawn, (axis,)):
            for number, one in enumerate(answers, start=1):
                sizes = [one.frontier.at(float(flops)).parameters for flops in compute]
                color, most = series(number), one.frontier.reach.most
                within = compute <= most
                axis.plot(compute, sizes, color=color, linewidth=0.9, linestyle="dotted", label=one.law)
                axis.plot(compute[within], np.array(sizes)[within], color=color, linewidth=1.4)
                best = one.optimum
                if best is not None:
                    axis.plot([best.flops], [best.parameters], color=color, marker=marker(number), linestyle="none")
            axis.set(xscale="log", yscale="log", xlabel="training FLOPs", ylabel="optimal parameters")
            plain_numbers(axis)
            axis.legend(fontsize=7, frameon=False)
            return with_print_colours(drawn)


def _frame(values: Mapping[str, Mapping[str, Any]]) -> "pandas.DataFrame":
    import pandas

    return pandas.json_normalize([{"law": name, **one} for name, one in values.items()]).set_index("law")


def sources(answers: "Mapping[str, LawAnswer] | Mapping[str, Growth]") -> Iterator[str]:
    """Yield sentences on the laws: their papers, the runs behind them, and how their intervals are made."""
    for name, one in answers.items():
        yield f"{name}: {one.frontier.source}."
    laws = {name: one.frontier for name, one in answers.items()}
    runs = _named((name, law.reach.source) for name, law in laws.items())
    yield " ".join(f"Fitted to {source}: {names}." for source, names in runs.items())
    spreads = ((name, law.spread) for name, law in laws.items())
    texts = ((name, f"{_percent(spread.level)}, {spread.source}") for name, spread in spreads if spread is not None)
    yield " ".join(f"Intervals of {text}: {names}." for text, names in _named(texts).items())


def warnings(answers: "Mapping[str, LawAnswer] | Mapping[str, Growth]") -> Iterator[str]:
    """Yield a sentence on each law whose points count other FLOPs than 6·N·D."""
    for name, one in answers.items():
        if said := one.frontier.accounting.warning:
            yield f"! {name}: {said} Answers cost what was asked in FLOPs as the points count them."


def _named(pairs: "Iterable[tuple[str, str]]") -> dict[str, str]:
    """Return the names that share each text."""
    found: dict[str, list[str]] = {}
    for name, text in pairs:
        found.setdefault(text, []).append(name)
    return {text: "; ".join(names) for text, names in found.items()}


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def interval(ends: tuple[float, float] | None, law: "Frontier", text: Callable[[float], str]) -> str:
    """Return an interval as text, with its level."""
    if ends is None or law.spread is None:
        return "–"
    return f"{text(ends[0])} to {text(ends[1])} ({_percent(law.spread.level)})"


def mark(beyond: float) -> str:
    """Return how far an answer is beyond the largest fitted run; empty within 100 times its compute."""
    from assay.scaling.fitted import MARKED

    return f"! {format_count(beyond)} × the fitted compute" if beyond > MARKED else ""


def _interval_of(found: LawAnswers) -> "Quantity":
    """Return the quantity whose interval the table has: N, or the data if N is given."""
    return "tokens" if found.quantity == "parameters" else "parameters"


def _optimal_row(one: "LawAnswer", other: "Quantity") -> tuple[str, ...]:
    best = one.optimum
    if best is None:
        return (one.law, *["–"] * 3, f"{one.flops:.3g}", "–", "–", f"refused: {mark(one.beyond)[2:]}")
    return (
        one.law,
        format_count(best.parameters),
        format_count(best.tokens),
        f"{best.tokens_per_parameter:.3g}",
        f"{best.flops:.3g}",
        "–" if best.loss is None else f"{best.loss:.3f}",
        interval(one.intervals.get(other), one.frontier, format_count),
        mark(one.beyond),
    )


def _refusals(found: LawAnswers) -> Iterator[str]:
    if any(one.far for one in found.answers.values()):
        yield (
            "! marks answers beyond 100 times the compute of the largest run behind a law: nothing supports them but "
            "the law's form. Beyond 10,000 times they are refused without --far."
        )
    small = [one for one in found.answers.values() if (one.frontier.reach.least or 0) > 100 * one.flops]
    if small:
        names = ", ".join(one.law for one in small)
        yield f"This is less than a hundredth of the compute of the smallest run behind {names}."


def _overtrained(found: LawAnswers, ratio: float) -> Iterator[Block]:
    yield f"The same loss at {ratio:g} tokens for each parameter:"
    columns = ("law", "parameters", "tokens", "FLOPs", "compute, times", "size, times", "beyond")
    rows = (
        (
            one.law,
            *_model(there),
            f"{there.training:.3g}",
            f"{there.size:.3g}",
            mark(one.frontier.reach.beyond(there.model.flops)),
        )
        for one, there in _there(found, 0)
    )
    yield Table.of(columns, rows, columns[1:-1])


def _served(found: LawAnswers, tokens: float) -> Iterator[Block]:
    yield (
        f"The same loss with the fewest FLOPs of training and of {format_count(tokens)} tokens of inference, "
        "6·N·D + 2·N·T (Sardana et al. 2023, arXiv:2401.00448):"
    )
    further = ("training FLOPs", "FLOPs with inference", "saved", "times the size", "beyond")
    columns = ("law", "parameters", "tokens", *further)
    rows = (
        (
            one.law,
            *_model(there),
            f"{there.flops:.3g}",
            f"{1 - there.whole:.1%}",
            f"{there.size:.3g}",
            mark(one.frontier.reach.beyond(there.model.flops)),
        )
        for one, there in _there(found, 1)
    )
    yield Table.of(columns, rows, columns[1:-1])


def _there(found: LawAnswers, which: int) -> "Iterator[tuple[LawAnswer, OtherSize]]":
    """Yield the answers that have a model off the optimum: the overtrained one, or the one that serves."""
    for one in found.answers.values():
        there = (one.overtrained, one.served)[which]
        if there is not None:
            yield one, there


def _model(there: "OtherSize") -> tuple[str, ...]:
    model = there.model
    return format_count(model.parameters), format_count(model.tokens), f"{model.flops:.3g}"


def _texts(found: LawAnswers) -> Iterator[Block]:
    from assay.scaling.optimal import BYTES_PER_TOKEN, Text

    low, high = BYTES_PER_TOKEN
    yield (
        f"The data as text, at {low:g} to {high:g} bytes a token. Common Crawl counts as 100 trillion tokens, the text "
        "of 84 crawls to 2023 (RedPajama-V2, arXiv:2411.12372):"
    )
    columns = ("law", "text", "times Common Crawl")
    texts = {name: Text(one.optimum.tokens) for name, one in found.answers.items() if one.optimum is not None}
    rows = (
        (name, f"{_bytes(text.nbytes[0])} to {_bytes(text.nbytes[1])}", f"{text.common_crawls:.2g}")
        for name, text in texts.items()
    )
    yield Table.of(columns, rows, columns[1:])


def _bytes(count: float) -> str:
    return f"{format_count(count, space=True)}B"


def _bills(found: LawAnswers) -> Iterator[Block]:
    bills = {name: one.bill for name, one in found.answers.items() if one.bill is not None}
    first = next(iter(bills.values()))
    if found.quantity == "flops":
        bills = {"every law": first}
    yield f"On {first.devices:,} × {first.device.name} at {_percent(first.mfu)} of the peak (MFU):"
    columns = ("law", "time", "days", "device hours", "energy, kWh", "money")
    rows = (
        (
            name,
            format_seconds(bill.seconds),
            f"{bill.seconds / 86_400:,.3g}",
            f"{bill.device_hours:,.4g}",
            "–" if bill.kilowatt_hours is None else f"{bill.kilowatt_hours:,.4g}",
            "–" if bill.money is None else f"{bill.money:,.0f}",
        )
        for name, bill in bills.items()
    )
    yield Table.of(columns, rows, columns[1:])


def _optimum_values(one: "LawAnswer") -> dict[str, Any]:
    from assay.scaling.optimal import Text

    best, spread = one.optimum, one.frontier.spread
    values: dict[str, Any] = {
        "parameters": None if best is None else best.parameters,
        "tokens": None if best is None else best.tokens,
        "flops": one.flops,
        "loss": None if best is None else best.loss,
        "ratio": None if best is None else best.tokens_per_parameter,
        "intervals": {quantity: list(ends) for quantity, ends in one.intervals.items()},
        "level": None if spread is None else spread.level,
        "beyond": one.beyond,
        "far": one.far,
        "refused": best is None,
        "source": one.frontier.source,
        **accounting_values(one.frontier.accounting),
    }
    if best is not None:
        text = Text(best.tokens)
        values["text"] = {"bytes": list(text.nbytes), "common_crawls": text.common_crawls}
    for name, there in (("overtrained", one.overtrained), ("served", one.served)):
        if there is not None:
            values[name] = _elsewhere_values(there)
    if one.bill is not None:
        names = ("seconds", "device_hours", "kilowatt_hours", "money")
        values["cost"] = one.bill.model_dump(mode="json") | {name: getattr(one.bill, name) for name in names}
    return values


def accounting_values(found: "Accounting") -> dict[str, Any]:
    """Return how points count FLOPs for programs; empty if these are 6·N·D."""
    if found.plain:
        return {}
    names = ("level", "power", "sizes", "ends", "warning")
    return {"flops_over_6nd": {name: finite(getattr(found, name)) for name in names}}


def _elsewhere_values(there: "OtherSize") -> dict[str, Any]:
    model = there.model
    whole = {"size": there.size, "training": there.training, "total_flops": there.flops, "total": there.whole}
    return {"parameters": model.parameters, "tokens": model.tokens, "flops": model.flops, **whole}


class GrowthView(Shown[Growths]):
    """Growth of the best size and data, as a reader is shown it."""

    def blocks(self) -> Iterator[Block]:
        """Yield a row for each law with the factors of N and D, and the model to which they lead."""
        found = self.found
        yield f"With {found.times:g} times the compute:"
        columns: tuple[str, ...] = ("law", "N, times", "interval", "D, times")
        if found.run is not None:
            columns += ("this run's N", "this run's D")
        if found.flops is not None:
            columns += ("optimal N", "optimal D", "beyond")
        yield Table.of(columns, (_growth_row(found, one) for one in found.answers.values()), columns[1:])
        yield from warnings(found.answers)
        if found.run is not None:
            parameters, tokens = map(format_count, found.run)
            yield (
                f"This run has {parameters} parameters and {tokens} tokens, {found.flops:.3g} FLOPs. Its N and D are "
                "multiplied by the factors, so it stays as far from the optimum as it is. The optimum is that of the "
                "whole compute."
            )
        yield from sources(found.answers)

    def frame(self) -> "pandas.DataFrame":
        """Return a row per law, indexed by `law`."""
        return _frame(self.values())

    def values(self) -> dict[str, Any]:
        """Return the figures of every law for programs."""
        found = self.found
        return {name: _growth_values(found, one) for name, one in found.answers.items()}


def _growth_row(found: Growths, one: "Growth") -> tuple[str, ...]:
    ends = interval(one.parameters_interval, one.frontier, "{:.3g}".format)
    row: tuple[str, ...] = (one.law, f"{one.parameters:.3g}", ends, f"{one.tokens:.3g}")
    if found.run is not None:
        row += tuple(map(format_count, _grown(found.run, one)))
    if one.beyond is None:
        return row
    if one.end is None:
        return (*row, "–", "–", f"refused: {mark(one.beyond)[2:]}")
    return (*row, format_count(one.end.parameters), format_count(one.end.tokens), mark(one.beyond))


def _grown(run: tuple[float, float], one: "Growth") -> tuple[float, float]:
    return run[0] * one.parameters, run[1] * one.tokens


def _growth_values(found: Growths, one: "Growth") -> dict[str, Any]:
    spread = one.frontier.spread
    return {
        "parameters_times": one.parameters,
        "interval": None if one.parameters_interval is None else list(one.parameters_interval),
        "level": None if spread is None else spread.level,
        "tokens_times": one.tokens,
        "run": None if found.run is None else dict(zip(("parameters", "tokens"), _grown(found.run, one), strict=True)),
        "optimum": None if one.end is None else {"parameters": one.end.parameters, "tokens": one.end.tokens},
        "flops": one.flops,
        "beyond": one.beyond,
        "refused": one.refused,
        "source": one.frontier.source,
        **accounting_values(one.frontier.accounting),
    }


_AROUND = 30.0
"""Factor of compute that is drawn on both sides of the answers."""
