"""Names of points in a figure, placed where they hide neither a point nor another name."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.report.page.theme import INK, SOFT

if TYPE_CHECKING:
    from matplotlib.transforms import Bbox

_PLACES = (
    (9, 0, "left", "center"),
    (-9, 0, "right", "center"),
    (0, 9, "center", "bottom"),
    (0, -9, "center", "top"),
    (14, 22, "left", "bottom"),
    (14, -22, "left", "top"),
    (-14, 22, "right", "bottom"),
    (-14, -22, "right", "top"),
    (0, 40, "center", "bottom"),
    (0, -40, "center", "top"),
)
"""Offsets from a point in typographic points, with alignments; the first that is free is taken."""
_NEAR = 9
"""Largest offset of a name that needs no line to its point."""
_POINT = 7.0
"""Half the width of a marker, in typographic points."""


class Label(NamedTuple):
    """The name of a point."""

    text: str
    at: tuple[float, float]


def place_labels(axis: Any, labels: Sequence[Label]) -> None:
    """Write each name beside its point; one for which there is no free place is left out."""
    axis.get_figure().draw_without_rendering()
    taken = [_around(axis, label.at) for label in labels]
    for label in labels:
        for right, up, across, along in _PLACES:
            text = axis.annotate(
                label.text, label.at, (right, up), textcoords="offset points", ha=across, va=along, fontsize=8,
                color=INK,
            )  # fmt: skip
            box = text.get_window_extent()
            if _inside(box, axis.get_window_extent()) and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                if max(abs(right), abs(up)) > _NEAR:
                    _line(axis, label.at, (right, up))
                break
            text.remove()


def _line(axis: Any, at: tuple[float, float], offset: tuple[int, int]) -> None:
    """Draw a line from a point to its name."""
    line = {"arrowstyle": "-", "color": SOFT, "linewidth": 0.8}
    axis.annotate("", at, offset, textcoords="offset points", arrowprops=line)


def _around(axis: Any, at: tuple[float, float]) -> "Bbox":
    from matplotlib.transforms import Bbox

    across, up = axis.transData.transform(at)
    reach = _POINT * axis.get_figure().dpi / 72
    return Bbox.from_extents(across - reach, up - reach, across + reach, up + reach)


def _inside(box: "Bbox", frame: "Bbox") -> bool:
    return bool(box.x0 >= frame.x0 and box.x1 <= frame.x1 and box.y0 >= frame.y0 and box.y1 <= frame.y1)
