"""The interface of an optimization: one object with three readings.

`predict` says what it should save and cost, `apply` makes the change, `verify` proves from a trace that the change took
effect. The estimator folds the first over a run's optimizations, the trainer the second, the checker the third; nothing
else in the package knows the name of a single one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from enum import Enum, IntEnum, auto
from typing import TYPE_CHECKING, ClassVar

from assay.config.base import Setting
from assay.config.model import ModelConfig
from assay.config.run import Run, Spec
from assay.errors import UsageError
from assay.reference.expected import REASSOCIATED, Expected
from assay.step.evidence import Evidence
from assay.step.trace import Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program


class Stage(IntEnum):
    """When an optimization is applied: order is correctness, so it lives here and never with the user.

    A new one takes the stage of what changes the same thing.
    """

    MODEL = auto()
    KERNEL = auto()
    PIPELINE = auto()
    SEQUENCE = auto()
    TENSOR = auto()
    EXPERT = auto()
    PRECISION = auto()
    RECOMPUTE = auto()
    COMPILE = auto()
    SHARD = auto()
    OPTIMIZER = auto()
    SOURCE = auto()
    BATCH = auto()
    STEP = auto()
    DATA = auto()


class Numerics(Enum):
    """What the same seed and data do to the loss, read in both directions: too equal is flagged like too far."""

    EXACT = "bit-equal to the baseline"
    REASSOCIATED = "equal up to the order of summation"
    LOSSY = "near the baseline, never equal to it"
    DIFFERENT_TRAINING = "a different training run"


class Unavailable(UsageError):
    """This machine cannot do it; the reason says what could."""


class Conflict(UsageError):
    """The run, or another optimization in it, excludes it."""


class Unpredicted(UsageError):
    """The ledger has no arithmetic for the technique."""

    def __init__(self, name: str) -> None:
        super().__init__(f"what a rank holds and does under {name} is not predicted; it can only be measured")


class Unplanned(UsageError):
    """A plan for other machines is made of closed forms, and they do not know this technique."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a plan for other machines cannot express {name}; leave it out of the plan")


class Optimization(Setting):
    """A technique. Its pydantic fields are its parameters; its class constants are its card."""

    title: ClassVar[str]
    stage: ClassVar[Stage]
    numerics: ClassVar[Numerics]
    saves: ClassVar[str]
    pays: ClassVar[str]
    sources: ClassVar[tuple[str, ...]]
    claims: ClassVar[frozenset[str]] = frozenset()
    """Seams of `Program` that it owns alone: two claimants of one seam conflict."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """Seams that another one in the run must own."""
    traits: ClassVar[frozenset[str]] = frozenset()
    """What others may have to know of it, in words that `excludes` and `requires` of theirs use."""

    @classmethod
    def name(cls) -> str:
        """The file's name, which is what users write."""
        return cls.__module__.rpartition(".")[2]

    def spec(self) -> Spec:
        """The optimization as configuration, every default written out."""
        return Spec(name=self.name(), fields=self.model_dump(mode="json"))

    @property
    def promised(self) -> Numerics:
        """Its numerics with these fields, where one of them loosens what the card says."""
        return self.numerics

    def axes(self) -> Mapping[str, int | None]:
        """The mesh axes along which it divides the step, with their degrees; None takes what other axes leave."""
        return {}

    def lay_out(self, layout: Layout) -> Layout:
        """The layout of a step on other machines with the change; its mesh already has `axes`.

        Raises `Unplanned` where a plan cannot express it.
        """
        raise Unplanned(self.name())

    def trained(self, model: ModelConfig) -> ModelConfig:
        """The configuration by which to read what was trained, where that is another model than the run's."""
        return model

    def cuts(self) -> int:
        """In how many equal parts it sends the sequences of a rank through."""
        return 1

    def leaves_one_in(self) -> int:
        """Of a batch's sequences, one in so many is trained on; the others are left out."""
        return 1

    def bears(self) -> frozenset[str]:
        """Its claims and traits, with these fields."""
        return self.claims | self.traits

    def excludes(self, run: Run) -> Mapping[str, str]:
        """Claims and traits of others beside which it cannot be, and why: a sentence in which `{other}` is one."""
        return {}

    def requires(self, run: Run, machine: Machine) -> Mapping[str, str]:
        """Claims and traits of which another one must have each, and the sentence where none does."""
        return {}

    def check(self, run: Run, machine: Machine) -> None:
        """Raise `Unavailable` or `Conflict`, in one sentence, before anything is built."""

    @abstractmethod
    def predict(self, cost: Cost, run: Run, machine: Machine) -> Cost:
        """The cost of the step with the change. Arithmetic only; never imports torch."""

    @abstractmethod
    def apply(self, program: Program, run: Run) -> Program:
        """The program with the change. Describes only: touches no storage and renames no parameter."""

    @abstractmethod
    def verify(self, trace: Trace, run: Run) -> Evidence:
        """What the trace shows of the change, and whether that is what was promised."""

    def expect(self, expected: Expected, run: Run) -> Expected:
        """What the step must compute with the change: losses, gradients and updates against the baseline's.

        Exact and reassociated techniques need no method of their own: an optimizer's numerics are those of its
        updates, and any other's those of its gradients. A lossy technique states its bounds, and one that trains
        differently states its rule; without that, the values of its runs are not checked.
        """
        if self.promised is Numerics.EXACT:
            return expected
        if self.promised is not Numerics.REASSOCIATED:
            return expected.changed(unstated=(*expected.unstated, self.name()))
        if "optimizer" in self.claims:
            return expected.loosened(updates=REASSOCIATED)
        return expected.loosened(gradients=REASSOCIATED, updates=REASSOCIATED)

    def evidence(self, observed: str, verdict: bool) -> Evidence:
        """An `Evidence` under this optimization's name."""
        return Evidence(optimization=self.name(), observed=observed, verdict=verdict)
