"""Contexts of a study: the levels of factors that describe a case, such as its size or its data, and are no choice.

A smaller model is always the lighter one, and nobody with a model of some size is helped by that. So rows are compared
within one context, with the row there that has the control's level of every other factor. A study without such factors
is one context, whose control is the study's.
"""

from collections.abc import Collection
from itertools import product
from typing import NamedTuple

from assay.analysis.comparison import Comparison
from assay.analysis.factors.layout import FactorLayout, layout, level_name
from assay.errors import UsageError, among, short_text

Levels = tuple[tuple[str, str], ...]


class Context(NamedTuple):
    """One level of each factor that is context, and the rows that have them."""

    levels: Levels
    """Key and level of each of these factors; empty if the study has none."""
    control: str
    """Row with the control's level of every other factor."""
    rows: frozenset[str]
    """All rows of the context, its control among them."""

    @property
    def name(self) -> str:
        """The levels as text; empty if there are none."""
        return ", ".join(level_name(*one) for one in self.levels)


def contexts(comparison: Comparison) -> tuple[Context, ...]:
    """Return the contexts of a study; that of the study's control is the first."""
    return contexts_of(layout(comparison.record), comparison.record.context)


def contexts_of(design: FactorLayout, keys: Collection[str]) -> tuple[Context, ...]:
    """Return the contexts of rows, if the factors of these keys are context.

    Rows whose own control is not among them belong to no context, because they have nothing to be compared with.
    """
    places = [at for at, factor in enumerate(design.factors) if factor.key in keys]
    others = [at for at in range(len(design.factors)) if at not in places]
    found = []
    for levels in product(*(design.factors[at].levels for at in places)):
        rows = [name for name, own in design.rows.items() if tuple(own[at] for at in places) == levels]
        plain = (name for name in rows if all(design.rows[name][at] == design.factors[at].levels[0] for at in others))
        control = next(plain, None)
        if control is not None:
            named = tuple((design.factors[at].key, level) for at, level in zip(places, levels, strict=True))
            found.append(Context(named, control, frozenset(rows)))
    return tuple(found)


def check_context(keys: Collection[str], factors: Collection[str]) -> None:
    """Raise `UsageError` if a study names a factor as context that it does not have, or leaves nothing to choose."""
    for key in keys:
        if key not in factors:
            raise UsageError(
                f"context names the factor {short_text(key)}, which the study does not have{among(key, factors)}"
            )
    if keys and set(keys) == set(factors):
        raise UsageError("every factor of the study is context, so there is nothing to choose; give one no role")
