"""Keep the best learning rate as a model becomes wider: maximal update parametrization (arXiv:2203.03466).

Let k = base_width/n_embd. Matrices of blocks start √k times as large as the model's and learn at k times the rate. The
projection to the vocabulary has k times both (table 3 of the paper, for Adam). Embeddings, biases and gains stay as
they are. A step then changes every hidden state by about as much at any width. So a rate that was found at the base
width serves a wider model. At the base width it is the plain program. Decay is divided by k where
the rate has k, so that a step shrinks weights as before. Heads keep their width and grow in number, so the scale of
attention stays; the paper's 1/d is for heads that widen. A tied embedding would need both rates, and is refused. The
optimizer is AdamW in more groups, and takes the same memory.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pydantic import PositiveInt

from assay.config import ResolvedRun
from assay.config.model import HEAD_WEIGHT
from assay.cost.gpt_tape import parameters
from assay.cost.matrix_updates import is_hidden_matrix
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected
from assay.reference.rules import MuPRule, plain_adamw

if TYPE_CHECKING:
    import torch

    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program


class MuP(Optimization):
    """Initial sizes and learning rates of matrices that follow the width of the model."""

    base_width: PositiveInt = 64
    """Value of model.n_embd for which the learning rate was chosen."""

    title: ClassVar = "maximal update parametrization"
    stage: ClassVar = Stage.OPTIMIZER
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = "a new search for the learning rate at each width"
    pays: ClassVar = "nothing in a step; a base width whose learning rate is known"
    sources: ClassVar = ("arXiv:2203.03466", "https://github.com/microsoft/mup")
    claims: ClassVar = frozenset({"optimizer", "initial weights"})

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        return {
            "tied weights": "mup needs an output projection of its own; leave out {other}",
            "frozen weights": "mup sets the rates of weights that {other} freezes; leave out one of them",
        }

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if run.model.tie_embeddings:
            raise Conflict("mup needs an output projection of its own; set model.tie_embeddings=false")
        if run.model.init_from is not None:
            raise Conflict("mup sets initial weights, and model.init_from has others; leave out one of them")
        if run.ranks > 1 or run.model.n_expert is not None:
            raise Conflict("mup is for dense models on one device; leave out mup, model.n_expert or further ranks")

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        return cost  # as many bytes and passes, in the same order

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizers.recipes import at_factors

        initial, rates = self._initial(run), self._rates(run)
        honest = program.weights.initialize

        def initialize(name: str, shape: "torch.Size") -> "torch.Tensor":
            return honest(name, shape) * initial.get(name, 1.0)

        recipe = at_factors(run.training, rates)
        return replace(program, optimizer=recipe, weights=replace(program.weights, initialize=initialize))

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        inner = plain_adamw(expected.rule)
        rule = MuPRule(weight_decay=inner.weight_decay, inner=inner, rates=self._rates(run))
        return expected.changed(rule=rule, initial_factors=self._initial(run))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        rates, rate = self._rates(run), trace.optimizer.learning_rate or 0.0
        decay, found, wrong = run.training.weight_decay, 0, 0
        matrices = {one.name for one in trace.trained if len(one.whole_shape) >= 2}
        for group in trace.optimizer.groups:
            for name in group.parameters:
                factor = rates.get(name, 1.0)
                wanted = {"lr": rate * factor, "weight_decay": decay / factor if name in matrices else 0.0}
                held = all(_near(group.settings.get(key), value) for key, value in wanted.items())
                found, wrong = found + (name in rates and "rate_factor" in group.settings), wrong + (not held)
        observed = f"{found} matrices of {len(rates)} at {self._ratio(run):g} times the rate"
        observed += f"; {wrong} parameters have another rate or decay" if wrong else ""
        return self.evidence(observed, found == len(rates) and not wrong)

    def _ratio(self, run: ResolvedRun) -> float:
        return self.base_width / run.model.n_embd

    def _rates(self, run: ResolvedRun) -> dict[str, float]:
        """Factors of the learning rate of parameters that do not learn at the run's."""
        named = parameters(run.model).items()
        matrices = [name for name, one in named if is_hidden_matrix(name, len(one.shape)) or name == HEAD_WEIGHT]
        return dict.fromkeys(matrices, self._ratio(run))

    def _initial(self, run: ResolvedRun) -> dict[str, float]:
        """Factors of the initial weights of parameters that do not start as the model's."""
        ratio = self._ratio(run)
        return {name: ratio if name == HEAD_WEIGHT else ratio**0.5 for name in self._rates(run)}


def _near(one: object, other: float) -> bool:
    """Compare settings, which may have been rounded to float32."""
    return isinstance(one, float | int) and abs(one - other) <= 1e-6 * abs(other)
