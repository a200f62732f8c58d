"""Slow references of optimizers: each rule is a few plain lines, replayed one tensor at a time.

A rule shares no code with the optimizer that it checks. It computes in float64, except where a technique's own rounding
is part of its rule (`precise`). Such rounding is coarser than what a float64 replay could be compared with. A rule
keeps its own state and receives the same gradients as the program's optimizer, so a replay checks the update alone.
Sources: AdamW arXiv:1711.05101, Adam arXiv:1412.6980, SGD with momentum as torch documents it; Lion arXiv:2302.06675;
Adafactor arXiv:1804.04235 in torch's form. Rules that orthogonalize matrices are in `matrix_rules`.

This file imports no torch: a rule only calls methods of its tensors.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from assay.config.base import Frozen

if TYPE_CHECKING:
    from torch import Tensor

State = dict[str, Any]


class Rule(Frozen):
    """One update of one tensor. A subclass gives the formula."""

    weight_decay: float
    """Decay λ of tensors with two or more dimensions; vectors do not decay."""
    cautious: bool = False
    """True if decoupled decay spares the elements that a step moves away from zero."""
    coarse_moments: ClassVar[frozenset[str]] = frozenset()
    """Names of moments that are computed from numbers in 16 bits, and may differ as much as these do."""

    @property
    def rounds_weight(self) -> bool:
        """True if the replay rounds the weight itself to the dtype in which it is kept."""
        return False

    @property
    def rounds_state(self) -> bool:
        """True if each update is replayed from the optimizer's own state, because its rounding is coarse."""
        return False

    def by_element(self, name: str, weight: "Tensor") -> bool:
        """True if the update of each element of this tensor depends on that element's gradient and state alone."""
        return False

    def joined(self, shapes: Sequence[Sequence[int]]) -> "Rule | None":
        """Return the rule of matrices that are joined end to end in one row; None if each must be updated alone.

        It is asked for matrices that are not updated by element.
        """
        return None

    def decay(self, weight: "Tensor") -> float:
        """Weight decay of this tensor: 0 for vectors."""
        return self.weight_decay if weight.ndim >= 2 else 0.0

    def decayed(self, weight: "Tensor", direction: "Tensor", rate: float) -> "Tensor":
        """Return a weight in float64 after its decoupled decay; the step subtracts a multiple of `direction`.

        Cautious decay (arXiv:2510.12402) shrinks elements whose product with the direction is not negative.
        """
        amount = rate * self.decay(weight)
        if not self.cautious:
            return weight * (1 - amount)
        spared = direction.sign() * weight.sign() < 0
        decayed: Tensor = weight - amount * weight.masked_fill(spared, 0.0)
        return decayed

    def options(self, name: str, weight: "Tensor") -> Mapping[str, Any]:
        """Options that the optimizer's group of a weight must have if it has them, under torch's names."""
        return {"weight_decay": self.decay(weight)}

    def rate_factor(self, name: str) -> float:
        """Learning rate of this tensor, as a multiple of the step's."""
        return 1.0

    def precise(self, tensor: "Tensor") -> "Tensor":
        """The tensor in the precision of the replay."""
        return tensor.double()

    @abstractmethod
    def adopt(self, entries: Mapping[str, "Tensor"]) -> State:
        """Return the replay's state of one tensor, from the optimizer's entries under torch's names."""

    @abstractmethod
    def update(self, name: str, weight: "Tensor", gradient: "Tensor", state: State, rate: float) -> "Tensor":
        """Return the weight after one update.

        `weight` and `gradient` have the same shape. `state` belongs to this tensor, is empty before its first update
        and is changed in place. `rate` is the learning rate of the step.
        """


def count(state: State) -> int:
    """Count one more update of a tensor, and return the number so far."""
    state["steps"] = state.get("steps", 0) + 1
    return int(state["steps"])


class AdamWRule(Rule):
    """Adam with decoupled weight decay: θ ← θ − η·λ·θ − η·m̂/(√v̂ + ε)."""

    beta1: float
    beta2: float
    epsilon: float
    coupled: bool = False
    """True if decay is added to the gradient, as in Adam before AdamW."""

    def options(self, name: str, weight: "Tensor") -> Mapping[str, Any]:
        return {**super().options(name, weight), "betas": [self.beta1, self.beta2]}

    def by_element(self, name: str, weight: "Tensor") -> bool:
        return True

    def adopt(self, entries: Mapping[str, "Tensor"]) -> State:
        square = entries["exp_avg_sq"]
        return {"m": self.precise(entries["exp_avg"]), "v": self.precise(square), "steps": int(entries["step"])}

    def update(self, name: str, weight: "Tensor", gradient: "Tensor", state: State, rate: float) -> "Tensor":
        w, g, t, decay = self.precise(weight), self.precise(gradient), count(state), self.decay(weight)
        g = g + decay * w if self.coupled else g
        state["m"] = self.beta1 * state.get("m", 0.0) + (1 - self.beta1) * g
        state["v"] = self.beta2 * state.get("v", 0.0) + (1 - self.beta2) * g * g
        mean, square = state["m"] / (1 - self.beta1**t), state["v"] / (1 - self.beta2**t)
        w = w if self.coupled else self.decayed(w, mean, rate)
        moved: Tensor = w - rate * mean / (square.sqrt() + self.epsilon)
        return moved


def plain_adamw(rule: Rule) -> AdamWRule:
    """Return an AdamW with the hyperparameters of a rule that rounds otherwise, such as one of 16-bit weights."""
    return AdamWRule.model_validate({name: getattr(rule, name) for name in AdamWRule.model_fields})


class MuPRule(Rule):
    """AdamW at the learning rate k·η for some tensors, whose decay is λ/k (arXiv:2203.03466)."""

    inner: AdamWRule
    rates: Mapping[str, float]
    """Factors k by the names of these tensors."""

    def rate_factor(self, name: str) -> float:
        return self.rates.get(name, 1.0)

    def options(self, name: str, weight: "Tensor") -> Mapping[str, Any]:
        return self._at(name).options(name, weight)

    def by_element(self, name: str, weight: "Tensor") -> bool:
        return True

    def adopt(self, entries: Mapping[str, "Tensor"]) -> State:
        return self.inner.adopt(entries)

    def update(self, name: str, weight: "Tensor", gradient: "Tensor", state: State, rate: float) -> "Tensor":
        return self._at(name).update(name, weight, gradient, state, rate * self.rate_factor(name))

    def _at(self, name: str) -> AdamWRule:
        decay = self.weight_decay / self.rate_factor(name)
        return self.inner.model_copy(update={"weight_decay": decay, "cautious": self.cautious})


class SGDRule(Rule):
    """Momentum b ← μ·b + g; θ ← θ − η·b, or θ − η·(g + μ·b) with Nesterov's momentum; decay joins the gradient."""

    momentum: float
    nesterov: bool

    def options(self, name: str, weight: "Tensor") -> Mapping[str, Any]:
        return {**super().options(name, weight), "momentum": self.momentum, "nesterov": self.nesterov}

    def by_element(self, name: str, weight: "Tensor") -> bool:
        return True

    def adopt(self, entries: Mapping[str, "Tensor"]) -> State:
        return {"b": self.precise(entries["momentum_buffer"])} if self.momentum else {}

    def update(self, name: str, weight: "Tensor", gradient: "Tensor", state: State, rate: float) -> "Tensor":
        w = self.precise(weight)
        g = self.precise(gradient) + self.decay(weight) * w
        state["b"] = self.momentum * state["b"] + g if "b" in state else g
        direction: Tensor = g + self.momentum * state["b"] if self.nesterov else state["b"]
        moved: Tensor = w - rate * direction
        return moved


class LionRule(Rule):
    """u = sign(β₁·m + (1 − β₁)·g); θ ← θ − η·(u + λ·θ); m ← β₂·m + (1 − β₂)·g."""

    beta1: float
    beta2: float

    def options(self, name: str, weight: "Tensor") -> Mapping[str, Any]:
        return {**super().options(name, weight), "betas": [self.beta1, self.beta2]}

    def by_element(self, name: str, weight: "Tensor") -> bool:
        return True

    def adopt(self, entries: Mapping[str, "Tensor"]) -> State:
        return {"m": self.precise(entries["exp_avg"])}

    def update(self, name: str, weight: "Tensor", gradient: "Tensor", state: State, rate: float) -> "Tensor":
        w, g, m = self.precise(weight), self.precise(gradient), state.get("m", 0.0)
        step: Tensor = (self.beta1 * m + (1 - self.beta1) * g).sign()
        state["m"] = self.beta2 * m + (1 - self.beta2) * g
        moved: Tensor = self.decayed(w, step, rate) - rate * step
        return moved


_EPSILONS = {"torch.float64": 2.0**-52, "torch.float32": 2.0**-23, "torch.float16": 2.0**-10, "torch.bfloat16": 2.0**-7}
"""Machine epsilon of each dtype: torch clamps the mean of the row factor to ε, and the second moment to ε²."""


class AdafactorRule(Rule):
    """U = G/√V̂ with a factored V̂; step = max(ε₂, RMS(θ))·min(η, 1/√t)·U/max(1, RMS(U))."""

    epsilon: float = 1e-3

    def adopt(self, entries: Mapping[str, "Tensor"]) -> State:
        names = {"row_var": "r", "col_var": "c", "variance": "v"}
        state = {short: self.precise(entries[name]) for name, short in names.items() if name in entries}
        return {**state, "steps": int(entries["step"])}

    def update(self, name: str, weight: "Tensor", gradient: "Tensor", state: State, rate: float) -> "Tensor":
        w, g, t = self.precise(weight), self.precise(gradient), count(state)
        least = _EPSILONS[str(weight.dtype)]
        fresh = t**-0.8
        if g.ndim > 1:
            state["r"] = (1 - fresh) * state.get("r", 0.0) + fresh * (g * g).mean(-1, keepdim=True)
            state["c"] = (1 - fresh) * state.get("c", 0.0) + fresh * (g * g).mean(-2, keepdim=True)
            square = state["r"] * state["c"] / state["r"].mean(-2, keepdim=True).clamp(min=least)
        else:
            square = state["v"] = (1 - fresh) * state.get("v", 0.0) + fresh * g * g
        step: Tensor = g / square.clamp(min=least**2).sqrt()
        size = max(self.epsilon, float((w * w).mean()) ** 0.5) * min(rate, t**-0.5)
        limit = max(1.0, float((step * step).mean()) ** 0.5)
        moved: Tensor = w * (1 - rate * self.decay(weight)) - size * step / limit
        return moved


class EightBitAdamWRule(AdamWRule):
    """AdamW with moments in 8 bits: a replay starts each update from the dequantized moments."""

    @property
    def rounds_state(self) -> bool:
        return True

    def by_element(self, name: str, weight: "Tensor") -> bool:
        return False  # a block of codes shares its scale


class NarrowStateAdamWRule(AdamWRule):
    """AdamW whose moments are rounded to a narrow dtype after every update.

    Arithmetic is float64. If the weight is rounded as well, float32 is fine enough, and takes two thirds of the time.
    """

    dtype: Literal["bfloat16", "half"]
    """Name of the tensor method that rounds to the dtype."""
    keeps_root: bool = False
    """True if √v is kept in place of v, as in float16, where a square would be zero."""
    narrow_weight: bool = False
    """True if the weight is rounded to `dtype` as well."""

    @property
    def rounds_weight(self) -> bool:
        return self.narrow_weight

    def precise(self, tensor: "Tensor") -> "Tensor":
        return tensor.float() if self.narrow_weight else tensor.double()

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
        return self.precise(getattr(tensor.float(), self.dtype)())


class NarrowAdamWRule(AdamWRule):
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
