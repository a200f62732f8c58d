"""One factor at a time: each level of each factor alone, against the control.

It needs the fewest rows, and says nothing of interactions: a gain may vanish beside another.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from assay.studies.varied import Varied


class OneAtATime(Varied):
    """The control, and every other level of each factor with all other factors at the control's level."""

    kind: ClassVar[str] = "one_at_a_time"

    def combinations(self) -> Iterator[Mapping[str, str]]:
        """Yield the control, then the levels of the first factor, of the second, and so on."""
        control = self.control()
        yield control
        changed = ({**control, one.key: level} for one in self.factors() for level in one.levels[1:])
        yield from self.allowed(changed)

    def label(self, levels: Mapping[str, str]) -> str:
        """Return the one level that differs from the control's."""
        control = self.control()
        return super().label({key: level for key, level in levels.items() if level != control[key]} or levels)
