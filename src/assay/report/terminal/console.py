"""A terminal that shows texts of records as texts: no character of them steers it, while styles of assay's own do."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from assay.errors import legible

if TYPE_CHECKING:
    from rich.console import Console


def legible_console(**options: Any) -> "Console":
    """Return a console with options of rich's `Console`. Everything that it draws passes through `legible`.

    Styles and movements of the cursor are not texts to rich, so they stay.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Legible(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=legible(segment.text))

    return Legible(**options)
