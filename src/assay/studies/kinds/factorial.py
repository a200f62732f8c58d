"""A full factorial: every combination of the levels of all factors, against the combination of the first levels."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import ClassVar

from assay.studies.varied import Varied


class Factorial(Varied):
    """All combinations of levels. The first level of each factor is that of the control."""

    kind: ClassVar[str] = "factorial"

    def combinations(self) -> Iterator[Mapping[str, str]]:
        """Yield every combination. The last factor varies fastest, and the first levels come first."""
        every = product(*(factor.levels for factor in self.factors()))
        yield from self.allowed(dict(zip(self.vary, levels, strict=True)) for levels in every)
