"""Texts of panels as a page draws them."""

import re
from collections.abc import Iterable

from assay.report.kit.drawing import Panel, alone, svg


def words(panels: Iterable[Panel]) -> str:
    """Titles and texts of all panels."""
    return " ".join(f"{one.title} {_texts(svg(alone(one), one.title))}" for one in panels)


def _texts(drawn: str) -> str:
    found = re.findall(r"<text[^>]*>([^<]*)</text>|<tspan[^>]*>([^<]*)</tspan>", drawn)
    return " ".join(" ".join("".join(one) for one in found).split())
