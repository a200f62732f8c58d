"""Pages without their figures' drawings, for tests that are about something else: a page takes half as long."""

from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_SVG = "<svg ></svg>"
_PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg==")
"""One white pixel."""


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every figure of a page come to an empty drawing; its axes are filled all the same."""
    leave_undrawn(monkeypatch)


def leave_undrawn(patch: pytest.MonkeyPatch) -> None:
    """Do so until the patch is undone."""
    from matplotlib.figure import Figure

    save = _drawing()

    def savefig(figure: Figure, target: Any, **options: Any) -> None:
        if options.get("format") == "svg":
            target.write(_SVG)
        elif isinstance(target, Path) and target.suffix in (".svg", ".png"):
            target.write_bytes(_SVG.encode() if target.suffix == ".svg" else _PNG)
        else:
            save(figure, target, **options)

    savefig.drawing = save  # type: ignore[attr-defined]
    patch.setattr(Figure, "savefig", savefig)


@contextmanager
def drawn() -> Iterator[None]:
    """Draw figures all the same."""
    from matplotlib.figure import Figure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", _drawing())
        yield


def _drawing() -> Any:
    """How figures are drawn, whatever stands in its place."""
    from matplotlib.figure import Figure

    return getattr(Figure.savefig, "drawing", Figure.savefig)
