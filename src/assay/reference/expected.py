"""The values that a step must compute: the baseline's, except where the run's optimizations change them on purpose.

`Expected` is folded over a run like a prediction. It starts as the plain baseline, and `Optimization.expect` of every
technique makes that technique's changes. The value check (`assay.values`) then runs the baseline program on the same
weights, batches and random state, and compares losses, gradients and updates with it.

Each kind of value has a `Closeness`. An exact value is bit-equal to the baseline's. A reassociated value may have the
rounding of another order of summation. Its error against a float64 baseline is at most a small multiple of the float32
baseline's own error. A lossy value stays within a relative bound that the technique states, and must differ from the
reference where its rounding has to show.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Self

from pydantic import ConfigDict

from assay.config.base import Frozen
from assay.config.model import ModelConfig
from assay.reference.merged_weights import Adapters
from assay.reference.rules import Rule

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["exact", "reassociated", "lossy"]

_LOOSENESS: tuple[Kind, ...] = ("exact", "reassociated", "lossy")


class Rounding(Frozen):
    """Where a lossy program rounds, and to which numbers; the value check imitates it (`assay.values.rounding`)."""

    dtype: Literal["bfloat16", "float16", "float8"]
    """Numbers that operands of matrix products are rounded to; float8 is that of linear layers, beside bfloat16."""
    everywhere: bool = False
    """True if weights, gradients and what every operation but the loss returns are rounded as well."""


class Closeness(Frozen):
    """Bound on the distance of a value from its reference."""

    kind: Kind = "exact"
    relative: float = 0.0
    """Largest relative error of one tensor (Euclidean norm), for lossy values."""
    at_least: float = 0.0
    """Relative error that some tensor must reach, for lossy values: a smaller one means that nothing was rounded."""
    slope: float = 0.0
    """Largest error of a gradient's projection on its reference, for lossy gradients."""
    loss: float = 0.0
    """Largest relative error of the loss, for lossy gradients. A loss, as a mean over many tokens, is much nearer."""
    vectors: float = 0.0
    """Further relative error of the gradient of a vector, which a kernel may add up over all tokens in 16 bits."""

    small_tensor: float = 0.01
    """Smallest root mean square that a lossy gradient's bound assumes, relative to that of all gradients."""

    rounding: Rounding | None = None
    """Rounding of a lossy program. A reference with it says what honest errors are; None: the figures above alone."""

    def loosened(self, other: "Closeness") -> "Closeness":
        """Return the looser of two kinds; the bounds of two lossy techniques add up."""
        if self.kind != other.kind:
            return max(self, other, key=lambda one: _LOOSENESS.index(one.kind))
        return Closeness(
            kind=self.kind,
            relative=self.relative + other.relative,
            at_least=max(self.at_least, other.at_least),
            slope=self.slope + other.slope,
            loss=self.loss + other.loss,
            vectors=self.vectors + other.vectors,
            small_tensor=max(self.small_tensor, other.small_tensor),
            rounding=self.rounding or other.rounding,
        )


EXACT = Closeness()
REASSOCIATED = Closeness(kind="reassociated")


def lossy(
    relative: float,
    *,
    at_least: float = 0.0,
    slope: float = 0.0,
    loss: float = 0.0,
    rounding: Rounding | None = None,
) -> Closeness:
    """Bound for values within `relative` of their reference, and somewhere at least `at_least` away from it."""
    return Closeness(kind="lossy", relative=relative, at_least=at_least, slope=slope, loss=loss, rounding=rounding)


IN_BFLOAT16 = lossy(0.1, at_least=2**-12, slope=0.02, loss=1e-3, rounding=Rounding(dtype="bfloat16"))
"""Bounds of a program whose products are in bfloat16: of one gradient, its least rounding, its scale, and the loss."""


def summed_in_16_bits(unit_roundoff: float, tokens: int) -> float:
    """Return the relative error of a sum that is kept in 16 bits: 5 u √N, at most 0.75, for N terms, one a token.

    On a CPU torch's layer norm adds up the gradients of its weights so. In bfloat16 (u = 2⁻⁹) the whole error of
    shakespeare-char-cpu reached 0.13, 0.16 and 0.51 at 768, 1,024 and 4,096 tokens. In float16 (u = 2⁻¹²) it reached
    0.060 at 4,096 tokens.
    """
    return min(0.75, 5 * unit_roundoff * math.sqrt(tokens))


class Stream(Frozen):
    """Documents that are trained on one after the other: files, or a data set of the Hugging Face hub."""

    path: str | None
    dataset: str | None
    split: str


class Expected(Frozen):
    """The values that the first steps of a run must compute."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    model: ModelConfig
    """The model whose plain program is the reference."""
    rule: Rule
    """The optimizer's rule, for the slow replay."""
    rate_factor: float = 1.0
    """Ratio of a step's learning rate to the run's schedule."""
    initial_factors: Mapping[str, float] = {}
    """Factors of initial weights by parameter name, where they are not those of the model."""
    batch_divisor: int = 1
    """Divisor n of the batch: one sequence in n is trained on."""
    adapters: Adapters | None = None
    """Adapters, the only parameters that are trained; None: every parameter is."""
    stream: Stream | None = None
    """Source of streamed documents. None: seed and step determine each batch of the prepared corpus."""
    document_end: int | None = None
    """Token that ends a document, beyond which no token attends. None: it attends to its whole row."""
    gradients: Closeness = EXACT
    updates: Closeness = REASSOCIATED
    """Closeness of weights after an update to the slow replay of the rule."""
    joint_updates: Closeness = EXACT
    """Looser bound of tensors whose elements an update joins, as Muon does those of a matrix."""
    same_noise: bool = True
    """True if dropout draws the same masks as in the baseline."""
    shows_masks: bool = True
    """False if dropout's masks are drawn where they cannot be kept: by compiled code, a captured graph or cuDNN."""
    unstated: tuple[str, ...] = ()
    """Techniques that do not state their values; a run with any of them is not checked."""

    def trains(self, name: str) -> bool:
        """True for a parameter that is trained, and not frozen."""
        return self.adapters is None or self.adapters.trains(name)

    def numbers(self, weights: "Mapping[str, Tensor]") -> "Mapping[str, Tensor]":
        """Return the numbers of recorded weights, of which some may be packed."""
        return weights if self.adapters is None else self.adapters.unpacked(weights, self.model)

    def closeness_of(self, name: str, weight: "Tensor") -> Closeness:
        """Return the closeness of one weight after an update."""
        by_element = self.rule.by_element(name, weight)
        return self.updates if by_element else self.updates.loosened(self.joint_updates)

    def loosened(
        self, *, gradients: Closeness = EXACT, updates: Closeness = EXACT, joint_updates: Closeness = EXACT
    ) -> Self:
        """Return a copy with looser bounds."""
        looser = {"gradients": gradients, "updates": updates, "joint_updates": joint_updates}
        return self.model_copy(update={name: getattr(self, name).loosened(one) for name, one in looser.items()})

    def changed(self, **values: object) -> Self:
        """Return a copy with other values."""
        return self.model_copy(update=values)
