"""The best size and data for a budget, and how they grow with it, under published laws and one of the user's points."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.api.asking.results import Grown, Optima
    from assay.scaling.asking.answer import Answer, Quantity
    from assay.scaling.asking.frontier import Frontier
    from assay.scaling.fitted import FittedLaw
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
    tokens_per_parameter: float | None = None,
    inference_tokens: float | None = None,
    device: str | None = None,
    devices: int | None = None,
    mfu: float | None = None,
    price: float | None = None,
    far: bool = False,
) -> "Optima":
    """Return the best model size and data for a budget, for a size or for an amount of data, under each law.

    `points` are a CSV file, or points, to which one more `law` is fitted, without the `drop` highest losses; or a
    frontier that was fitted before (`frontier_of`). `tokens_per_parameter` asks for a model with the loss of the
    optimum and so many tokens for each parameter. `inference_tokens` asks for the one that is cheapest with its
    inference. With `device`, each answer has hours, energy and money, as in `training_cost`. An answer beyond 10,000
    times the compute of the largest fitted run is left out, except with `far`. Raises `UsageError` unless exactly one
    of the first three is given, for impossible numbers, and if no law answers.
    """
    from assay.api.asking.results import Optima
    from assay.scaling.asking.answer import answer, check_any

    quantity, value = _asked({"flops": flops, "parameters": parameters, "tokens": tokens})
    _check("tokens for each parameter", tokens_per_parameter, _RATIOS)
    _check("tokens of inference", inference_tokens, _SERVED)
    _check_fit(points, law, drop)
    if device is None and any(one is not None for one in (devices, mfu, price)):
        raise UsageError("devices, MFU and price are those of a device; name one with --device, such as h100")
    found = {name: answer(name, law, quantity, value, far) for name, law in _frontiers(points, law, drop).items()}
    check_any((one.frontier for one in found.values()), (one.flops for one in found.values()), far)
    if device is not None:
        found = {name: _billed(one, device, devices or 1, mfu, price) for name, one in found.items()}
    whole = {name: _elsewhere(one, tokens_per_parameter, inference_tokens) for name, one in found.items()}
    return Optima(quantity, value, whole, tokens_per_parameter, inference_tokens)


def growth(
    times: float,
    *,
    flops: float | None = None,
    parameters: float | None = None,
    tokens: float | None = None,
    points: "Points | Path | str | None" = None,
    law: str = "hoffmann",
    drop: int = 0,
    far: bool = False,
) -> "Grown":
    """Return how N and D should grow with `times` the compute, under each law.

    The start is the optimum of `flops`, or a run with `parameters` and `tokens`; without either the answer has factors
    only. Raises `UsageError` for other combinations and impossible numbers, and if no law answers.
    """
    from assay.api.asking.results import Grown
    from assay.scaling.asking.answer import check_any
    from assay.scaling.asking.growth import growth as grow
    from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN

    _check("times the compute", times, _TIMES)
    if (parameters is None) != (tokens is None) or (flops is not None and parameters is not None):
        raise UsageError("growth starts from FLOPs, or from a run with both parameters and tokens")
    given: dict[Quantity, float | None] = {"flops": flops, "parameters": parameters, "tokens": tokens}
    for quantity, value in given.items():
        _check(_NAMES[quantity], value, (_LEAST, _MOST[quantity]))
    run = None if parameters is None or tokens is None else (parameters, tokens)
    start = flops if run is None else FLOPS_PER_PARAMETER_AND_TOKEN * run[0] * run[1]
    laws = _frontiers(points, law, drop)
    if start is not None:
        check_any(laws.values(), [times * start] * len(laws), far)
    found = {name: grow(name, law, times, start, far) for name, law in laws.items()}
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


def _check_fit(points: object, law: str, drop: int) -> None:
    if points is None and (law != "hoffmann" or drop):
        raise UsageError("a law and dropped points are those of a fit; name its points")


def _frontiers(points: "Points | Frontier | Path | str | None", law: str, drop: int) -> "Mapping[str, Frontier]":
    from assay.api.laws.fitting import fit
    from assay.scaling.asking.frontier import Frontier
    from assay.scaling.published import FRONTIERS

    if points is None:
        return FRONTIERS
    if isinstance(points, Frontier):
        return {FITTED: points, **FRONTIERS}
    found = fit(points, law=law, drop=drop, hold_out=False)
    count = f"{len(found.fit.points)} points"
    place = f"the {count} of {points}" if isinstance(points, Path | str) else count
    return {FITTED: frontier_of(found, place), **FRONTIERS}


def frontier_of(found: "FittedLaw", place: str) -> "Frontier":
    """Return the frontier of a fitted law, with the laws of its bootstrap; `place` names its points.

    Raises `UsageError` for a law without an optimum.
    """
    from assay.scaling.asking.frontier import Frontier, Minimum, Reach, Spread

    form, flops = found.law.form, found.fit.points.flops
    found.law.optimum(float(flops.max()))  # refuses a law without an optimum
    if not found.supports_optimum:
        raise UsageError(
            f"no best size is near the sizes of {place}, so they do not show how large a model should be; add points "
            "whose losses fall with both size and data"
        )
    reach = Reach(float(flops.min()), float(flops.max()), place)
    able = [one for one in found.draws if form.optimum(one.values, float(flops.max())) is not None]
    spread = Spread(tuple(map(Minimum, able)), 0.95, f"bootstrap of {len(able)} draws")
    return Frontier(Minimum(found.law), f"{form.formula}, fitted; {form.counts}", reach, spread, found.law)


def _billed(one: "Answer", device: str, devices: int, mfu: float | None, price: float | None) -> "Answer":
    from assay.api.estimating import flops_cost

    if one.optimum is None:
        return one
    return replace(one, bill=flops_cost(one.flops, device=device, devices=devices, mfu=mfu, price=price))


def _elsewhere(one: "Answer", ratio: float | None, inference_tokens: float | None) -> "Answer":
    from assay.scaling.asking.elsewhere import overtrained, served

    law, best = one.frontier.law, one.optimum
    if law is None or best is None:
        return one
    return replace(
        one,
        overtrained=None if ratio is None else overtrained(law, best, ratio),
        served=None if inference_tokens is None else served(law, best, inference_tokens),
    )
