"""Slow references of Muon and NorMuon, whose updates orthogonalize matrices; the rest is as in `rules`.

Sources: Muon kellerjordan.github.io/posts/muon with the step size of arXiv:2502.16982; NorMuon arXiv:2510.05491.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from assay.reference.rules import AdamWRule, Rule, State

if TYPE_CHECKING:
    from torch import Tensor

_NARROW = 2**12
"""Elements of a matrix, at most, that is orthogonalized beside wider ones: there operators cost more than products."""


class MuonRule(Rule):
    """Orthogonalized Nesterov momentum for hidden matrices, AdamW for all other tensors.

    The five Newton–Schulz iterations are rounded to bfloat16, as the method defines them. They raise the smallest
    directions of a matrix some hundredfold, so the momentum and their input are rounded to the weight's dtype as well.
    """

    momentum: float
    others: AdamWRule
    shapes: tuple[tuple[int, int], ...] = ()
    """Shapes of the matrices that are joined end to end in the row of a weight; empty if the weight is one matrix."""

    def options(self, name: str, weight: "Tensor") -> Mapping[str, Any]:
        own = {**super().options(name, weight), "momentum": self.momentum}
        return own if self._hidden(name, weight) else self.others.options(name, weight)

    def by_element(self, name: str, weight: "Tensor") -> bool:
        return not self._hidden(name, weight)

    def joined(self, shapes: Sequence[Sequence[int]]) -> "Rule":
        return self.model_copy(update={"shapes": tuple(tuple(shape) for shape in shapes)})

    @staticmethod
    def _hidden(name: str, weight: "Tensor") -> bool:
        return name.startswith("blocks.") and weight.ndim == 2

    def adopt(self, entries: Mapping[str, "Tensor"]) -> State:
        if "momentum_buffer" in entries:
            return {"b": self.precise(entries["momentum_buffer"])}
        return self.others.adopt(entries)

    def update(self, name: str, weight: "Tensor", gradient: "Tensor", state: State, rate: float) -> "Tensor":
        if not self._hidden(name, weight):
            return self.others.update(name, weight, gradient, state, rate)
        w, g = self.precise(weight), gradient.to(weight.dtype)
        buffer = state.get("b", weight.new_zeros(weight.shape)).to(weight.dtype).lerp(g, 1 - self.momentum)
        state["b"] = self.precise(buffer)
        step = w.new_empty(w.shape)
        directions = self._orthogonal(self._matrices(g.lerp(buffer, self.momentum)))
        for place, one in zip(self._matrices(step), self.sized(directions, state), strict=True):
            place.copy_(one)
        moved: Tensor = self.decayed(w, step, rate) - rate * step
        return moved

    def sized(self, directions: "Sequence[Tensor]", state: State) -> "list[Tensor]":
        """Return orthogonal directions at the size of AdamW's steps."""
        return [one * (0.2 * max(one.shape) ** 0.5) for one in directions]

    def _matrices(self, whole: "Tensor") -> "list[Tensor]":
        """Return views of the matrices that are joined in one row."""
        if not self.shapes:
            return [whole]
        pieces = whole[0].split([rows * columns for rows, columns in self.shapes])  # type: ignore[no-untyped-call]
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def _orthogonal(self, matrices: "Sequence[Tensor]") -> "list[Tensor]":
        """Orthogonalize matrices of one size together; small ones also with wider ones, as zero columns stay zero."""
        wide = [one.mT if one.shape[0] > one.shape[1] else one for one in matrices]
        alike: dict[tuple[int, int], list[int]] = {}
        for place, one in enumerate(wide):
            alike.setdefault((one.shape[0], 0 if one.numel() <= _NARROW else one.shape[1]), []).append(place)
        found = list(wide)
        for (rows, _), places in alike.items():
            stack = wide[places[0]].new_zeros(len(places), rows, max(wide[place].shape[1] for place in places))
            for padded, place in zip(stack, places, strict=True):
                padded[:, : wide[place].shape[1]] = wide[place]
            for direction, place in zip(self._iterated(stack), places, strict=True):
                found[place] = direction[:, : wide[place].shape[1]]
        return [one if one.shape == whole.shape else one.mT for one, whole in zip(found, matrices, strict=True)]

    @staticmethod
    def _iterated(stack: "Tensor") -> "Tensor":
        """Return the orthogonal factors of some matrices with no more rows than columns, in float64."""
        x = stack.float().bfloat16()
        x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
        for _ in range(5):
            wide = x.float()
            gram = (wide @ wide.mT).bfloat16().float()
            polynomial = gram.baddbmm(gram, gram, beta=-4.7750, alpha=2.0315).bfloat16().float()
            x = wide.baddbmm(polynomial, wide, beta=3.4445).bfloat16()
        found: Tensor = x.double()
        return found


class NorMuonRule(MuonRule):
    """v ← β₂·v + (1 − β₂)·mean of O² by row; Ô = O/(√v + ε); θ ← θ − η·(0.2·√(rows·columns)·Ô/‖Ô‖ + λ·θ)."""

    beta2: float
    epsilon: float
    coarse_moments: ClassVar[frozenset[str]] = frozenset({"v"})

    def options(self, name: str, weight: "Tensor") -> Mapping[str, Any]:
        own = {"beta2": self.beta2, "eps": self.epsilon} if self._hidden(name, weight) else {}
        return {**super().options(name, weight), **own}

    def adopt(self, entries: Mapping[str, "Tensor"]) -> State:
        rows = entries.get("second_momentum_buffer")
        return {**super().adopt(entries), **({} if rows is None else {"v": self.precise(rows)})}

    def sized(self, directions: "Sequence[Tensor]", state: State) -> "list[Tensor]":
        means = directions[0].new_empty(sum(map(len, directions)), 1)
        for place, one in zip(_by_rows(means, directions), directions, strict=True):
            place.copy_((one**2).mean(1, keepdim=True))
        state["v"] = self.beta2 * state.get("v", 0.0) + (1 - self.beta2) * means
        roots = _by_rows(state["v"].sqrt() + self.epsilon, directions)
        normal = [one / root for one, root in zip(directions, roots, strict=True)]
        return [0.2 * one.numel() ** 0.5 * one / (one.norm() + self.epsilon) for one in normal]


def _by_rows(column: "Tensor", matrices: "Sequence[Tensor]") -> "tuple[Tensor, ...]":
    """Return views of a column's parts, with a number for each row of each matrix."""
    found: tuple[Tensor, ...] = column.split([len(one) for one in matrices])  # type: ignore[no-untyped-call]
    return found
