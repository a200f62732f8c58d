"""The last lines of a study of scaling: what its law predicted, what that is held against, and what to run next."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from assay.records.study import StudyEnding
from assay.report.scaled.answer import HOFFMANN_EXPONENT, verdict
from assay.units import format_power

if TYPE_CHECKING:
    from assay.scaling.studied.answer import ScalingAnswer

_LARGER = 10
"""Factor from the largest run to the budget of the suggested command, as from the fitted runs to the held-out one."""


def closing(found: "ScalingAnswer") -> Iterator[tuple[str, str]]:
    """Yield (label, text) of the last lines."""
    yield "result", " ".join(verdict(found))
    yield "against", "; ".join(_against(found))
    yield from (("next", hint) for hint in _hints(found))


def _against(found: "ScalingAnswer") -> Iterator[str]:
    """Yield the fitted runs, from which everything is predicted, and the published growth of the best size."""
    flops, lowest = [one.flops for one in found.fitted], min(found.fitted, key=lambda one: one.loss)
    yield (
        f"{len(flops)} fitted runs of {format_power(min(flops))} to {format_power(max(flops))} FLOPs, whose lowest "
        f"loss is {lowest.loss:.4f}"
    )
    if found.isoflop is not None:
        here = found.isoflop.optima.size.exponent
        yield f"the best size grows as C^{here:.2f} here, and as C^{HOFFMANN_EXPONENT:.2f} in Hoffmann et al. 2022"


def _hints(found: "ScalingAnswer") -> Iterator[str]:
    study = found.record.id
    if found.record.ending is not StudyEnding.COMPLETE:
        yield f"assay study resume {study}    runs the cells that have no result"
    flops = f"{_LARGER * max(one.flops for one in found.points):.2g}".replace("e+", "e")
    yield f"assay scaling optimal --flops {flops} --points {study}    the best size for {_LARGER} times the compute"
    yield f"assay scaling points {study} > points.csv    the runs, for assay scaling fit"
