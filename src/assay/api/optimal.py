"""The best size and data for a budget, and how they grow with it, under published laws and one of the user's points."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.api.scaling_results import Grown, LawOptima
    from assay.scaling.fitted import FittedLaw
    from assay.scaling.frontier import Frontier
    from assay.scaling.optimal import LawAnswer, Quantity
    from assay.scaling.points import Points

_LEAST, _MOST = 1e3, {"flops": 1e40, "parameters": 1e20, "tokens": 1e20}
_NAMES: "Mapping[Quantity, str]" = {"flops": "FLOPs", "parameters": "parameters", "tokens": "tokens"}
_RATIOS, _SERVED, _TIMES = (1e-3, 1e6), (1.0, 1e20), (1e-3, 1e12)
FITTED = "your points"
"""Name of the law that is fitted to the user's points."""


def optimal(
    *,
    flops: float | None = None,
    parameters: float | None = None,
    tokens: float | None = None,
    points: "Points | Frontier | Path | str | None" = None,
    law: str = "hoffmann",
    drop: int = 0,
    columns: str | None = None,
    tokens_per_parameter: float | None = None,
    inference_tokens: float | None = None,
    device: str | None = None,
    devices: int | None = None,
    mfu: float | None = None,
    price: float | None = None,
    far: bool = False,
) -> "LawOptima":
    """Return the best model size and data for a budget, for a size or for an amount of data, under each law.

    `points` are a CSV file, with `columns` as in `fit`, or points, to which one more `law` is fitted, without the
    `drop` highest losses; or a frontier that was fitted before. Its answers cost the budget as they count FLOPs.
    `tokens_per_parameter` asks for a model with the loss of the optimum and so many tokens for each parameter.
    `inference_tokens` asks for the one that is cheapest with its inference. With `device`, each answer has hours and
    money. An answer beyond 10,000 times the compute of the largest fitted run is left out, except with `far`. Raises
    `UsageError` unless one of the first three is given, and if no law answers.
    """
    from assay.api.scaling_results import LawOptima
    from assay.scaling.optimal import answer, check_any

    quantity, value = _asked({"flops": flops, "parameters": parameters, "tokens": tokens})
    _check("tokens for each parameter", tokens_per_parameter, _RATIOS)
    _check("tokens of inference", inference_tokens, _SERVED)
    _check_bill(device, devices, mfu, price)
    laws = _frontiers(points, law, drop, columns)
    found = {name: answer(name, one, quantity, value, far) for name, one in laws.items()}
    check_any((one.frontier for one in found.values()), (one.flops for one in found.values()), far)
    if device is not None:
        found = {name: _billed(one, device, devices or 1, mfu, price) for name, one in found.items()}
    further = tokens_per_parameter, inference_tokens
    return LawOptima(quantity, value, {name: _elsewhere(one, *further) for name, one in found.items()}, *further)


def growth(
    times: float,
    *,
    flops: float | None = None,
    parameters: float | None = None,
    tokens: float | None = None,
    points: "Points | Path | str | None" = None,
    law: str = "hoffmann",
    drop: int = 0,
    columns: str | None = None,
    far: bool = False,
) -> "Grown":
    """Return how N and D should grow with `times` the compute, under each law.

    The start is the optimum of `flops`, or a run with `parameters` and `tokens`; without either the answer has factors
    only. Raises `UsageError` for other combinations and impossible numbers, and if no law answers.
    """
    from assay.api.scaling_results import Grown
    from assay.scaling.optimal import check_any
    from assay.scaling.optimal import growth as grow
    from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN

    _check("times the compute", times, _TIMES)
    if (parameters is None) != (tokens is None) or (flops is not None and parameters is not None):
        raise UsageError("growth starts from FLOPs, or from a run with both parameters and tokens")
    given: dict[Quantity, float | None] = {"flops": flops, "parameters": parameters, "tokens": tokens}
    for quantity, value in given.items():
        _check(_NAMES[quantity], value, (_LEAST, _MOST[quantity]))
    run = None if parameters is None or tokens is None else (parameters, tokens)
    start = flops if run is None else FLOPS_PER_PARAMETER_AND_TOKEN * run[0] * run[1]
    laws = _frontiers(points, law, drop, columns)
    starts = {name: start if run is None else float(law.accounting.flops(*run)) for name, law in laws.items()}
    if start is not None:
        check_any(laws.values(), [times * (one or start) for one in starts.values()], far)
    found = {name: grow(name, law, times, starts[name], far) for name, law in laws.items()}
    return Grown(times, start, run, found)


def _asked(given: "Mapping[Quantity, float | None]") -> "tuple[Quantity, float]":
    """Return the one quantity that is given. Raises `UsageError` unless there is one, in a possible range."""
    asked = [(quantity, value) for quantity, value in given.items() if value is not None]
    if len(asked) != 1:
        raise UsageError("give exactly one of FLOPs, parameters and tokens")
    quantity, value = asked[0]
    _check(_NAMES[quantity], value, (_LEAST, _MOST[quantity]))
    return quantity, value


def _check(name: str, value: float | None, ends: tuple[float, float]) -> None:
    if value is not None and not ends[0] <= value <= ends[1]:
        raise UsageError(f"{value:g} {name} are not possible; give a number from {ends[0]:g} to {ends[1]:g}")


def _check_bill(device: str | None, *others: float | None) -> None:
    if device is None and any(one is not None for one in others):
        raise UsageError("devices, MFU and price are those of a device; name one with --device, such as h100")


def _frontiers(
    points: "Points | Frontier | Path | str | None", law: str, drop: int, columns: str | None
) -> "Mapping[str, Frontier]":
    from assay.api.laws import fit
    from assay.scaling.frontier import Frontier
    from assay.scaling.published import FRONTIERS

    if points is None and (law != "hoffmann" or drop or columns):
        raise UsageError("a law, dropped points and columns are those of a fit; name its points")
    if points is None:
        return FRONTIERS
    if isinstance(points, Frontier):
        return {FITTED: points, **FRONTIERS}
    found = fit(points, law=law, drop=drop, hold_out=False, columns=columns)
    count = f"{len(found.fit.points)} points"
    place = f"the {count} of {points}" if isinstance(points, Path | str) else count
    return {FITTED: frontier_of(found, place), **FRONTIERS}


def frontier_of(found: "FittedLaw", place: str) -> "Frontier":
    """Return the frontier of a fitted law, with the laws of its bootstrap; `place` names its points.

    Raises `UsageError` for a law without an optimum.
    """
    from assay.scaling.frontier import Frontier, Reach, Spread, minimum

    form, flops, counted = found.law.form, found.fit.points.flops, found.accounting
    found.law.optimum(float(flops.max()))  # refuses a law without an optimum
    if not found.supports_optimum:
        raise UsageError(
            f"no best size is near the sizes of {place}, so they do not show how large a model should be; add points "
            "whose losses fall with both size and data"
        )
    spent = flops if counted.plain else found.fit.points.compute
    reach = Reach(float(spent.min()), float(spent.max()), place)
    able = [one for one in found.draws if form.optimum(one.values, float(flops.max())) is not None]
    spread = Spread(tuple(minimum(law, counted) for law in able), 0.95, f"bootstrap of {len(able)} draws")
    source = f"{form.formula}, fitted; {form.counts}"
    return Frontier(minimum(found.law, counted), source, reach, spread, found.law, counted)


def _billed(one: "LawAnswer", device: str, devices: int, mfu: float | None, price: float | None) -> "LawAnswer":
    from assay.api.cost import flops_cost

    if one.optimum is None:
        return one
    return replace(one, bill=flops_cost(one.flops, device=device, devices=devices, mfu=mfu, price=price))


def _elsewhere(one: "LawAnswer", ratio: float | None, inference_tokens: float | None) -> "LawAnswer":
    from assay.scaling.optimal import overtrained_model, serving_model

    law, best = one.frontier.law, one.optimum
    if law is None or best is None:
        return one
    return replace(
        one,
        overtrained=None if ratio is None else overtrained_model(law, best, ratio, one.frontier.accounting),
        served=None
        if inference_tokens is None
        else serving_model(law, best, inference_tokens, one.frontier.accounting),
    )
