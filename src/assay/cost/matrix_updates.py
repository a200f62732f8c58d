"""Optimizers that treat matrices differently, as the ledger sees them: Muon, NorMuon, and torch's Adafactor (2.13).

Muon orthogonalizes a momentum by five steps of a Newton–Schulz iteration in bfloat16. Besides copies, it makes m × m
products of a matrix whose smaller side is m. Adafactor keeps a row and a column in place of a second moment.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import ClassVar

from assay.cost.gpu_kernels import norm_along, norm_of_one
from assay.cost.kernels import Gpu
from assay.cost.operation import DTYPE_BYTES, Tensor
from assay.cost.update_rules import (
    AdamWUpdate,
    Instant,
    Pieces,
    Product,
    Traffic,
    UpdateRule,
    after_another,
    beside,
    comparison_traffic,
    counts,
    each,
    groups,
    like,
)

_STEPS = 5
"""Steps of the iteration."""
_LEAST_TRANSPOSED, _TRANSPOSED_BYTES = 60 * 60, 60 * 60 * 2
"""Elements from which torch's CPU transposes a tall matrix by way of a block of 60 × 60, and bytes of that block."""


def is_hidden_matrix(name: str, dimensions: int) -> bool:
    """True if Muon updates a parameter: a matrix of a block, neither an embedding nor an output weight."""
    return name.startswith("blocks.") and dimensions == 2


@dataclass(frozen=True)
class MuonUpdate(UpdateRule):
    """Our Muon for hidden matrices, and then AdamW for the rest.

    Passes over a hidden matrix: momentum and Nesterov 3 + 3, bfloat16 copy, norm and scale 3, step and decay 4.5.
    """

    cautious: bool = False
    """True if decay spares some elements."""
    label: ClassVar = "Muon"
    passes: ClassVar = 13.5
    launches: ClassVar = 9.0

    @property
    def _others(self) -> AdamWUpdate:
        return AdamWUpdate(cautious=self.cautious)

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """A momentum for each hidden matrix; AdamW's two moments and step count for every other parameter."""
        hidden, rest = _split(pieces)
        return (*like(hidden), *self._others.state(rest))

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """Nesterov's momentum, and at the end of an iteration two bfloat16 copies and two products.

        A CPU transposes tall matrices by way of a block.
        """
        hidden, rest = _split(pieces)
        made = [Instant(self.label, one.name, _iterated(one) + _transposed(one)) for one in hidden.values()]
        return (*made, *self._others.instants(rest))

    def instants_on(self, gpu: Gpu, pieces: Pieces) -> tuple[Instant, ...]:
        """Instants as on a CPU, without its block."""
        hidden, rest = _split(pieces)
        made = [Instant(self.label, one.name, _iterated(one)) for one in hidden.values()]
        return (*made, *self._others.instants(rest))

    def traffic(self, pieces: Pieces) -> Traffic:
        """Passes over hidden matrices, with those of cautious decay, and AdamW's over the rest."""
        hidden, rest = _split(pieces)
        own = each(hidden, self.passes, self.launches).plus(self._others.traffic(rest))
        return own.plus(comparison_traffic(hidden)) if self.cautious else own

    def products(self, pieces: Pieces) -> tuple[Product, ...]:
        """Products of each iteration step: the matrix times its transpose, that squared, and that times the matrix."""
        hidden, _ = _split(pieces)
        sides = [(min(one.shape), max(one.shape)) for one in hidden.values()]
        return tuple(
            Product(short, inner, columns, "bfloat16", _STEPS)
            for short, long in sides
            for inner, columns in ((long, short), (short, short), (short, long))
        )


@dataclass(frozen=True)
class NorMuonUpdate(MuonUpdate):
    """Our NorMuon for hidden matrices. Passes: Muon's, the copy 1.5, the norms of rows 1, their factors 2, step 0.5.

    The copy takes less than the end of an iteration, where two matrices in bfloat16 are beside one in float32.
    """

    label: ClassVar = "NorMuon"
    passes: ClassVar = 18.5
    launches: ClassVar = 20.0

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """Muon's state, and the mean square of every row of a hidden matrix."""
        hidden, _ = _split(pieces)
        rows = (replace(one, shape=(one.shape[0], 1)) for one in hidden.values())
        return (*super().state(pieces), *rows)


def _limited_mean(matrix: Tensor) -> int:
    """Bytes of one number for each of some stacked matrices, and of the Python number that limits them from below."""
    return prod(matrix.shape[:-2]) * DTYPE_BYTES[matrix.dtype] + beside(matrix)


@dataclass(frozen=True)
class AdafactorUpdate(UpdateRule):
    """Torch's single-tensor Adafactor."""

    passes: ClassVar = 18.4
    launches: ClassVar = 13.0

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """A row and a column for each matrix, the whole second moment for each vector, and step counts."""
        kept: list[Tensor] = []
        for one in pieces.values():
            if len(one.shape) > 1:
                kept += _factors(one)
            else:
                kept.append(replace(one, name=f"variance.{one.name}"))
        return (*kept, *counts(pieces))

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """The second moment's estimate and factors, and the previous parameter's update; a vector's square as well.

        A matrix begins with its row, while the variables still hold all of its predecessor. Its estimate is divided by
        the mean of its rows, which a number limits.
        """
        matrices, vectors = groups(pieces)
        return (
            *(
                Instant("Adafactor", one.name, before.nbytes + _nbytes(_factors(before)) + _factors(one)[0].nbytes)
                for before, one in pairwise(matrices)
            ),
            *(
                Instant("Adafactor", one.name, before + one.nbytes + _nbytes(_factors(one)), _limited_mean(one))
                for before, one in after_another(matrices)
            ),
            *(Instant("Adafactor", one.name, before + 2 * one.nbytes) for before, one in after_another(vectors)),
        )

    def instants_on(self, gpu: Gpu, pieces: Pieces) -> tuple[Instant, ...]:
        """Instants as on a CPU, and the norms of each matrix and update, with their partial sums."""
        matrices, _ = groups(pieces)
        made: list[Instant] = []
        update, old_row, old_column = 0, 0, 0
        for one in matrices:
            row, column = (factor.nbytes for factor in _factors(one))
            number = DTYPE_BYTES["float32"]
            along, across = (norm_along(one.shape, dimension, gpu) for dimension in (-1, -2))
            needs = (
                update + old_row + old_column + row + along,
                update + row + old_column + column + across,
                one.nbytes + row + column + number + norm_of_one(one.elements, gpu),
            )
            made += [Instant("Adafactor", one.name, nbytes) for nbytes in needs]
            update, old_row, old_column = one.nbytes, row, column
        return (*self.instants(pieces), *made)

    def products(self, pieces: Pieces) -> tuple[Product, ...]:
        """Products of a column and a row, which estimate the second moments."""
        matrices, _ = groups(pieces)
        return tuple(Product(one.shape[-2], 1, one.shape[-1], one.dtype, prod(one.shape[:-2])) for one in matrices)


def _iterated(one: Tensor) -> int:
    """Bytes at the end of an iteration of a matrix."""
    narrow = one.cast("bfloat16")
    product = replace(narrow, shape=(min(one.shape), min(one.shape)))
    return one.nbytes + 2 * narrow.nbytes + 2 * product.nbytes


def _transposed(one: Tensor) -> int:
    return _TRANSPOSED_BYTES if one.shape[0] > one.shape[1] and one.elements >= _LEAST_TRANSPOSED else 0


def _split(pieces: Pieces) -> tuple[Pieces, Pieces]:
    hidden = {name: one for name, one in pieces.items() if is_hidden_matrix(name, len(one.shape))}
    return hidden, {name: one for name, one in pieces.items() if name not in hidden}


def _nbytes(tensors: Iterable[Tensor]) -> int:
    return sum(one.nbytes for one in tensors)


def _factors(matrix: Tensor) -> list[Tensor]:
    *others, rows, columns = matrix.shape
    shapes = {"row_var": (*others, rows, 1), "col_var": (*others, 1, columns)}
    return [replace(matrix, name=f"{label}.{matrix.name}", shape=shape) for label, shape in shapes.items()]
