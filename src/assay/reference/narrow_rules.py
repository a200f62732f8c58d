"""Slow references of AdamW with rounding: of its moments, of the weight, or of every operation.

The rounding is part of the rule, because it is coarser than what a float64 replay could be compared with.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from assay.reference.rules import AdamW, State, count

if TYPE_CHECKING:
    from torch import Tensor


class EightBitAdamW(AdamW):
    """AdamW with moments in 8 bits: a replay starts each update from the dequantized moments."""

    @property
    def rounds_state(self) -> bool:
        return True

    def by_element(self, name: str, weight: "Tensor") -> bool:
        return False  # a block of codes shares its scale


class NarrowStateAdamW(AdamW):
    """AdamW whose moments are rounded to a narrow dtype after every update; arithmetic is float64."""

    dtype: Literal["bfloat16", "half"]
    """Name of the tensor method that rounds to the dtype."""
    keeps_root: bool = False
    """True if √v is kept in place of v, as in float16, where a square would be zero."""
    narrow_weight: bool = False
    """True if the weight is rounded to `dtype` as well."""

    @property
    def rounds_weight(self) -> bool:
        return self.narrow_weight

    def adopt(self, entries: Mapping[str, "Tensor"]) -> State:
        if not self.keeps_root:
            return super().adopt(entries)
        return super().adopt({**entries, "exp_avg_sq": self.precise(entries["exp_avg_root"]) ** 2})

    def update(self, name: str, weight: "Tensor", gradient: "Tensor", state: State, rate: float) -> "Tensor":
        moved = super().update(name, weight, gradient, state, rate)
        state["m"] = self._rounded(state["m"])
        state["v"] = self._rounded(state["v"].sqrt()) ** 2 if self.keeps_root else self._rounded(state["v"])
        return self._rounded(moved) if self.narrow_weight else moved

    def _rounded(self, tensor: "Tensor") -> "Tensor":
        rounded: Tensor = getattr(tensor.float(), self.dtype)()
        return rounded.double()


class NarrowAdamW(AdamW):
    """AdamW with every operation rounded to the weight's own dtype, as in torch's plain loop."""

    rounds_factors: bool = False
    """True if β₂ and the factor of weight decay are rounded before they multiply: 0.9998 is then 1 in bfloat16."""

    @property
    def rounds_weight(self) -> bool:
        return True

    def precise(self, tensor: "Tensor") -> "Tensor":
        return tensor.clone()

    def update(self, name: str, weight: "Tensor", gradient: "Tensor", state: State, rate: float) -> "Tensor":
        w, t, decay = weight.clone(), count(state), self.decay(weight)
        g = gradient.add(w, alpha=decay) if self.coupled else gradient
        mean, square = state.setdefault("m", g.new_zeros(g.shape)), state.setdefault("v", g.new_zeros(g.shape))
        mean.lerp_(g, 1 - self.beta1)
        square.mul_(self._factor(self.beta2, w)).addcmul_(g, g, value=1 - self.beta2)
        root = (square.sqrt() / (1 - self.beta2**t) ** 0.5).add_(self.epsilon)
        shrunk = w if self.coupled else w.mul_(self._factor(1 - rate * decay, w))
        moved: Tensor = shrunk.addcdiv_(mean, root, value=-rate / (1 - self.beta1**t))
        return moved

    def _factor(self, value: float, like: "Tensor") -> float:
        return float(like.new_tensor(value)) if self.rounds_factors else value
