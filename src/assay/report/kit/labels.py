"""Names of points in a figure, each where it is free."""

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.report.kit.drawing import INK, SOFT

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
    *(
        place
        for far in (30, 40, 55, 80)
        for place in (
            (0, far, "center", "bottom"),
            (0, -far, "center", "top"),
            (-far, 10, "right", "bottom"),
            (far, 10, "left", "bottom"),
            (-far, 30, "right", "center"),
            (far, 30, "left", "center"),
            (-far, -30, "right", "center"),
            (0, far, "right", "bottom"),
            (0, far, "left", "bottom"),
            (0, -far, "right", "top"),
            (0, -far, "left", "top"),
        )
    ),
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
    """Write each name beside its point; one for which there is no free place is left out.

    A name lies across the line of another only where all other places are taken.
    """
    axis.get_figure().draw_without_rendering()
    points, frame = [_around(axis, label.at) for label in labels], axis.get_window_extent()
    names, lines = list[Any](), list[Any]()
    for label in labels:
        for crosses, (right, up, across, along) in product((False, True), _PLACES):
            text = axis.annotate(
                label.text, label.at, (right, up), textcoords="offset points", ha=across, va=along, fontsize=8,
                color=INK,
            )  # fmt: skip
            box, line = text.get_window_extent(), _between(axis, label.at, (right, up))
            free = not any(box.overlaps(other) for other in (*points, *names))
            clear = crosses or (not any(map(box.overlaps, lines)) and not any(map(line.overlaps, names)))
            if free and clear and _inside(box, frame):
                names.append(box)
                if max(abs(right), abs(up)) > _NEAR:
                    lines.append(line)
                    _line(axis, label.at, (right, up))
                break
            text.remove()


def _line(axis: Any, at: tuple[float, float], offset: tuple[int, int]) -> None:
    """Draw a line from a point to its name."""
    line = {"arrowstyle": "-", "color": SOFT, "linewidth": 0.8}
    axis.annotate("", at, offset, textcoords="offset points", arrowprops=line)


def _between(axis: Any, at: tuple[float, float], offset: tuple[int, int]) -> "Bbox":
    """Return the rectangle that has the line to a name as its diagonal."""
    across, up = axis.transData.transform(at)
    right, above = (one * axis.get_figure().dpi / 72 for one in offset)
    ends = sorted((across, across + right)), sorted((up, up + above))
    return _box(ends[0][0] - 1, ends[1][0], ends[0][1] + 1, ends[1][1])


def _around(axis: Any, at: tuple[float, float]) -> "Bbox":
    across, up = axis.transData.transform(at)
    reach = _POINT * axis.get_figure().dpi / 72
    return _box(across - reach, up - reach, across + reach, up + reach)


def _box(*corners: float) -> "Bbox":
    from matplotlib.transforms import Bbox

    return Bbox.from_extents(*corners)


def _inside(box: "Bbox", frame: "Bbox") -> bool:
    return bool(box.x0 >= frame.x0 and box.x1 <= frame.x1 and box.y0 >= frame.y0 and box.y1 <= frame.y1)
