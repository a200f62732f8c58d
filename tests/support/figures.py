"""Pages without their figures' drawings, for tests that are about something else: a page takes half as long."""

from typing import Any

import pytest


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every figure of a page come to an empty drawing; its axes are filled all the same."""
    from matplotlib.figure import Figure

    drawn = Figure.savefig

    def savefig(figure: Figure, target: Any, **options: Any) -> None:
        if options.get("format") == "svg":
            target.write("<svg ></svg>")
        else:
            drawn(figure, target, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)
