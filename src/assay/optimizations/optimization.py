"""The interface of an optimization: one object with four readings.

`predict` states what it should save and cost, `apply` makes the change, `verify` proves from a trace that the change
took effect, and `expect` states which values it must compute. The estimator folds `predict` over a run's optimizations,
the trainer `apply`, the checker `verify`, the value check `expect`. Nothing else in the package knows the name of a
single optimization.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum, auto
from typing import TYPE_CHECKING, ClassVar

from assay.config.base import Setting
from assay.config.model import ModelConfig
from assay.config.run import ResolvedRun, Scalar, Spec
from assay.errors import UsageError
from assay.records.evidence import Evidence
from assay.records.trace import Trace

if TYPE_CHECKING:
    from torch import Tensor

    from assay.cost import Cost
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.reference.expected import Expected
    from assay.step.program import Program


class Stage(IntEnum):
    """The order in which optimizations are applied.

    Correctness depends on this order, so techniques define it and users do not. A new technique takes the stage of
    those that change the same thing.
    """

    MODEL = auto()
    ADAPTER = auto()
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
    DECAY = auto()
    SOURCE = auto()
    BATCH = auto()
    STEP = auto()
    DATA = auto()


class Numerics(Enum):
    """Promise about the loss at equal seed and data. It holds in both directions: a loss too equal is flagged, too."""

    EXACT = "bit-equal to the baseline"
    REASSOCIATED = "equal up to the order of summation"
    LOSSY = "near the baseline, never equal to it"
    DIFFERENT_TRAINING = "a different training run"


class Unavailable(UsageError):
    """This machine cannot run the optimization; the message names what could."""


class Conflict(UsageError):
    """The run, or another optimization in it, excludes the optimization."""


class Unpredicted(UsageError):
    """The ledger has no arithmetic for the technique."""

    def __init__(self, name: str) -> None:
        super().__init__(f"memory and time of {name} are not predicted; they can only be measured")


class Unplanned(UsageError):
    """Plans for other machines are closed forms, and these do not cover the technique."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a plan for other machines cannot express {name}; leave it out of the plan")


class Optimization(Setting):
    """A technique. Its pydantic fields are its parameters, its class constants are its card."""

    title: ClassVar[str]
    stage: ClassVar[Stage]
    numerics: ClassVar[Numerics]
    saves: ClassVar[str]
    pays: ClassVar[str]
    sources: ClassVar[tuple[str, ...]]
    claims: ClassVar[frozenset[str]] = frozenset()
    """Seams of `Program` that it owns alone; two techniques that claim one seam conflict."""
    unseen: ClassVar[str] = ""
    """Time that the roofline of a step leaves out, in words; advice then needs a measurement. Empty: none."""
    practice: ClassVar[str] = ""
    """Published trainings of language models that kept the loss with it, in a few words. Empty: none is named."""
    compiles: ClassVar[bool] = False
    """True if its first step compiles code, which takes seconds to minutes."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """Seams that another technique of the run must claim."""
    usual: ClassVar[str] = ""
    """Why one tries it first, in a few words. A comparison for which none is named takes such techniques. Empty: no."""
    any_model: ClassVar[bool] = False
    """True if it acts through a program's seams alone, and not on parts of the GPT, so that it serves any model."""
    traits: ClassVar[frozenset[str]] = frozenset()
    """Properties that other techniques may exclude or require, as keys of their `excludes` and `requires`."""

    @classmethod
    def name(cls) -> str:
        """The module's file name, which is also the name that users write."""
        return cls.__module__.rpartition(".")[2]

    def spec(self) -> Spec:
        """The optimization as configuration, with every default written out."""
        return Spec(name=self.name(), fields=self.model_dump(mode="json"))

    @property
    def promised(self) -> Numerics:
        """Numerics with these field values, which may be looser than the card's."""
        return self.numerics

    @classmethod
    def choices(cls, run: ResolvedRun) -> Sequence[Mapping[str, Scalar]]:
        """Fields that `assay recommend` tries on a run: none that differ from the defaults, unless others may help."""
        return ({},)

    def axes(self) -> Mapping[str, int | None]:
        """Mesh axes along which it divides the step, with their degrees. None: all ranks that other axes leave."""
        return {}

    def lay_out(self, layout: Layout) -> Layout:
        """The layout of a step on other machines with the change; its mesh already has `axes`.

        Raises `Unplanned` where a plan cannot express the change.
        """
        raise Unplanned(self.name())

    def trained(self, model: ModelConfig) -> ModelConfig:
        """Configuration of the model that training produces, where it differs from the run's `model`."""
        return model

    def model_weights(self, weights: Mapping[str, Tensor], model: ModelConfig) -> Mapping[str, Tensor]:
        """Weights of that model, from those of a checkpoint."""
        return weights

    def cuts(self) -> int:
        """Number of equal micro-batches into which it cuts a rank's sequences."""
        return 1

    def leaves_one_in(self) -> int:
        """Divisor of the batch: one sequence in this many is trained on, the others are left out."""
        return 1

    def bears(self) -> frozenset[str]:
        """Its claims and traits, with these field values."""
        return self.claims | self.traits

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        """Claims and traits that it cannot be combined with, each with an error message about `{other}`."""
        return {}

    def requires(self, run: ResolvedRun, machine: Machine) -> Mapping[str, str]:
        """Claims and traits that another technique must bear, each with the error message if none does."""
        return {}

    def unadvised(self, run: ResolvedRun, machine: Machine) -> str:
        """Return why advice leaves it out unless the configuration asks for it; empty: it does not."""
        return ""

    def known_loss(self, run: ResolvedRun, machine: Machine) -> str:
        """Return why it takes more time in such a run by a rule, with the rule's source; empty: no rule says so."""
        return ""

    def measured_gain(self, run: ResolvedRun, machine: Machine) -> str:
        """Return a gain that was measured on such a machine and that no prediction tells; empty: none is known."""
        return ""

    def remarks(self, run: ResolvedRun) -> tuple[str, ...]:
        """Return sentences on what it will not read of its own input, as far as is known before a run."""
        return ()

    def remarks_on_records(self, run: ResolvedRun) -> tuple[str, ...]:
        """Return what a plan says beside `remarks`, of the first records of its own input."""
        return ()

    def check(self, run: ResolvedRun, machine: Machine) -> None:
        """Raise `Unavailable` or `Conflict`, in one sentence, before anything is built."""

    def check_program(self, program: Program, run: ResolvedRun) -> None:
        """Raise `Conflict` if a user's own model lacks what it changes. The program may lie on another device."""

    @abstractmethod
    def predict(self, cost: Cost, run: ResolvedRun, machine: Machine) -> Cost:
        """Return the cost of the step with the change. Arithmetic only; never imports torch."""

    @abstractmethod
    def apply(self, program: Program, run: ResolvedRun) -> Program:
        """Return the program with the change. It only describes: it touches no storage and renames no parameter."""

    @abstractmethod
    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        """Return the trace's evidence of the change, with the verdict whether it is as promised."""

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        """Return the values that the step must compute with the change: losses, gradients and updates.

        They are stated relative to the baseline's.

        Exact and reassociated techniques need no method of their own. The numerics of an optimizer are those of its
        updates; the numerics of any other technique are those of its gradients. A lossy technique states its bounds,
        and a technique that trains differently states its rule. Without such a statement the values of its runs are not
        checked.
        """
        from assay.reference.expected import REASSOCIATED

        if self.promised is Numerics.EXACT:
            return expected
        if self.promised is not Numerics.REASSOCIATED:
            return expected.changed(unstated=(*expected.unstated, self.name()))
        if "optimizer" in self.claims:
            return expected.loosened(updates=REASSOCIATED)
        return expected.loosened(gradients=REASSOCIATED, updates=REASSOCIATED)

    def evidence(self, observed: str, verdict: bool) -> Evidence:
        """Return `Evidence` under this optimization's name."""
        return Evidence(optimization=self.name(), observed=observed, verdict=verdict)
