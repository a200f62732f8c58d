"""Terms of a factorial model: main effects and interactions of up to three factors, and which of them a design shows.

A term names levels of one, two or three factors, none of them the first level. Its column is the product over its
factors of (1 if the row has the level, else 0) − 1 / (number of levels). With these columns a coefficient is the effect
in plain words.

- One factor: the mean of the level less the mean of the first level, over all levels of the other factors.
- Two factors: how much the effect of one differs if the other is at its level instead of its first one. It is zero if
  their changes add up.
- Three factors: how much that differs with the third factor.

For two levels, textbooks print half of an interaction of two factors, and a quarter of one of three.

Columns that are equal up to a factor and a constant are aliases: one figure is the sum of their effects. Among the
others, a coefficient counts only if every solution of the model agrees on it, whatever the other coefficients are.
"""

from collections.abc import Sequence
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from assay.analysis.factors.layout import Change, FactorLayout
from assay.analysis.quantiles import Floats
from assay.records.study import BASELINE

LARGEST = 3
"""Most factors of an interaction."""
_ZERO = 1e-9


class Term(NamedTuple):
    """A main effect or an interaction."""

    changes: tuple[Change, ...]
    aliases: tuple[tuple[Change, ...], ...] = ()
    """Effects of at most two factors that the design cannot distinguish from this one."""


class Model(NamedTuple):
    """Effects that a design shows, each as a contrast of the rows' changes."""

    terms: tuple[Term, ...]
    weights: Floats
    """Weights of the rows' changes: [terms, rows]."""
    unknown: tuple[Term, ...]
    """Effects that the rows do not determine."""


def model(design: FactorLayout, rows: Sequence[str], covariance: Floats) -> Model | None:
    """Return the effects that some rows determine, by least squares with their covariance; None if there are none."""
    levels = [
        tuple(dict.fromkeys((factor.levels[0], *(design.rows[name][at] for name in rows))))
        for at, factor in enumerate(design.factors)
    ]
    varied = [at for at, one in enumerate(levels) if len(one) > 1]
    if len(varied) < 2 or sum(len(levels[at]) - 1 for at in varied) > len(rows):
        return None
    indicators = {
        (at, level): np.array([design.rows[name][at] == level for name in (BASELINE, *rows)]) - 1 / len(levels[at])
        for at in varied
        for level in levels[at][1:]
    }
    columns = {
        tuple((design.factors[at].key, level) for at, level in term): np.prod([indicators[one] for one in term], axis=0)
        for size in range(1, LARGEST + 1)
        for chosen in combinations(varied, size)
        for term in product(*([(at, level) for level in levels[at][1:]] for at in chosen))
    }
    return _solved(columns, covariance)


def _solved(columns: dict[tuple[Change, ...], Floats], covariance: Floats) -> Model | None:
    """Return the model of these columns, whose first entry is the control's."""
    terms = _unlike(columns)
    matrix = np.stack([columns[term.changes][1:] - columns[term.changes][0] for term in terms], axis=1)
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    inverse = np.linalg.pinv(root @ matrix, rcond=_ZERO)
    sure = np.isclose(np.diag(inverse @ root @ matrix), 1.0, atol=1e-6)
    if not sure.any():
        return None
    weights = (inverse @ root)[sure]
    weights[np.abs(weights) < _ZERO] = 0.0
    known = tuple(term for term, one in zip(terms, sure, strict=True) if one)
    return Model(known, weights, tuple(term for term, one in zip(terms, sure, strict=True) if not one))


def _unlike(columns: dict[tuple[Change, ...], Floats]) -> list[Term]:
    """Return the simplest term of each set of aliases; terms that are constant in the design are left out."""
    sets: dict[bytes, list[tuple[Change, ...]]] = {}
    for changes, column in columns.items():
        centred = column - column.mean()
        size = np.linalg.norm(centred)
        if size > _ZERO:
            unit = np.round(centred / size, 6)
            sets.setdefault((unit * np.sign(unit[np.flatnonzero(unit)[0]]) + 0.0).tobytes(), []).append(changes)
    return [Term(first, tuple(one for one in others if len(one) < LARGEST)) for first, *others in sets.values()]
