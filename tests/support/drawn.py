"""Panels as a page draws them, and their texts."""

import re
from collections.abc import Iterable

from assay.report.kit.drawing import Panel, alone, svg
from support.figures import drawn


def drawing(panel: Panel) -> str:
    """A panel as SVG."""
    with drawn():
        return svg(alone(panel), panel.title)


def words(panels: Iterable[Panel]) -> str:
    """Titles and texts of all panels."""
    return " ".join(f"{one.title} {_texts(drawing(one))}" for one in panels)


def _texts(figure: str) -> str:
    found = re.findall(r"<text[^>]*>([^<]*)</text>|<tspan[^>]*>([^<]*)</tspan>", figure)
    return " ".join(" ".join("".join(one) for one in found).split())
