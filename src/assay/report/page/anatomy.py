"""Figure of an anatomy: each module's time as a bar, divided by class of operator, and shares of the whole."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.files import check_target
from assay.records.anatomy import CLASSES, Anatomy, Sum
from assay.records.trace import OperationClass
from assay.report.kit.drawing import LIGHT, SOFT, canvas, printed, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 10.0
_COLOURS = dict(zip(CLASSES, LIGHT[1:], strict=False))
_LEAST_LABELLED = 0.06
"""Smallest share of the whole for which a bar has room for its figure."""
_TITLES: dict[OperationClass, str] = {
    "contraction": "tensor contraction",
    "normalization": "statistical normalization",
    "elementwise": "element-wise",
    "movement": "data movement",
    "communication": "communication",
}


def drawable(path: Path) -> None:
    """Raise `UsageError` if the figure's format or folder is impossible, before anything is measured for it."""
    check_target(path, "figure", (".png", ".svg"))


def draw(anatomy: Anatomy, path: Path) -> None:
    """Write the figure as PNG or SVG, by the file's suffix."""
    save(figure(anatomy), path)


def figure(anatomy: Anatomy) -> "Figure":
    """Return the figure: modules on the left, shares of the whole on the right."""
    modules = anatomy.by_module()
    with canvas(_WIDTH, 1.4 + 0.27 * len(modules), 2, gridspec_kw={"width_ratios": (3, 2)}) as (drawn, (left, right)):
        drawn.suptitle(f"One step of {anatomy.title}" if anatomy.title else "One step", fontsize=10)
        _modules(left, anatomy)
        _shares(right, anatomy)
        shown = [kind for kind in CLASSES if kind in anatomy.by_class()]
        handles = [left.barh(0, 0, color=_COLOURS[kind], label=_TITLES[kind]) for kind in shown]
        drawn.legend(handles=handles, loc="outside lower center", ncols=len(shown), frameon=False)
        return printed(drawn)


def _modules(axis: Any, anatomy: Anatomy) -> None:
    modules, divided = list(anatomy.by_module()), anatomy.by_module_and_class()
    for place, module in enumerate(modules):
        start = 0.0
        for kind in CLASSES:
            width = 1e3 * divided.get((module, kind), Sum()).seconds
            axis.barh(place, width, left=start, height=0.72, color=_COLOURS[kind], linewidth=0)
            start += width
    axis.set_xlim(0, 1050 * max(one.seconds for one in anatomy.by_module().values()))
    axis.set_yticks(range(len(modules)), modules)
    axis.set_ylim(len(modules) - 0.4, -0.6)
    axis.grid(axis="y", visible=False)
    axis.set(title="time in operators, by module", xlabel="milliseconds of one step")


def _shares(axis: Any, anatomy: Anatomy) -> None:
    """Draw time, FLOPs and bytes, each divided by class."""
    whole, classes = anatomy.whole, anatomy.by_class()
    for place, measure in enumerate(("seconds", "flops", "bytes")):
        start, total = 0.0, getattr(whole, measure) or 1
        for kind, one in classes.items():
            share = getattr(one, measure) / total
            axis.barh(place, 100 * share, left=start, height=0.6, color=_COLOURS[kind], linewidth=0)
            if share >= _LEAST_LABELLED:
                middle = start + 50 * share
                axis.text(middle, place, f"{share:.0%}", ha="center", va="center", color="white", fontsize=8)
            start += 100 * share
    axis.set_yticks(range(3), ("time", "FLOPs", "bytes"), color=SOFT)
    axis.set_ylim(2.6, -0.6)
    axis.set_xlim(0, 100)
    axis.grid(axis="y", visible=False)
    axis.set(title="shares of the whole, by class of operator", xlabel="%")
