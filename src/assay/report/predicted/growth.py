"""Growth of the best size and data with compute, as text and values."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.report.blocks import Block, Table
from assay.report.predicted.optimal import accounting_values, interval, mark, sources, warnings
from assay.units import format_count

if TYPE_CHECKING:
    from assay.scaling.asking.growth import Growth, Growths


def growth_report(found: "Growths") -> Iterator[Block]:
    """Yield a row for each law with the factors of N and D, and the model to which they lead."""
    yield f"With {found.times:g} times the compute:"
    columns: tuple[str, ...] = ("law", "N, times", "interval", "D, times")
    if found.run is not None:
        columns += ("this run's N", "this run's D")
    if found.flops is not None:
        columns += ("optimal N", "optimal D", "beyond")
    yield Table.of(columns, (_row(found, one) for one in found.answers.values()), columns[1:])
    yield from warnings(found.answers)
    if found.run is not None:
        parameters, tokens = map(format_count, found.run)
        yield (
            f"This run has {parameters} parameters and {tokens} tokens, {found.flops:.3g} FLOPs. Its N and D are "
            "multiplied by the factors, so it stays as far from the optimum as it is. The optimum is that of the whole "
            "compute."
        )
    yield from sources(found.answers)


def _row(found: "Growths", one: "Growth") -> tuple[str, ...]:
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


def growth_values(found: "Growths") -> dict[str, Any]:
    """Return the figures of every law for programs."""
    return {name: _values(found, one) for name, one in found.answers.items()}


def _values(found: "Growths", one: "Growth") -> dict[str, Any]:
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
