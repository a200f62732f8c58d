"""Optimizers as recipes, with weight decay on matrices and embeddings only: torch's own, Lion, Muon and its kind.

A recipe builds an optimizer from live parameters. An optimizer over a model on the meta device would own nothing once
that is materialized. Every recipe names its kernel (the plain loop is neither `foreach` nor `fused`), since torch
otherwise chooses by device. The choice must reach every parameter group: a group with a choice of its own ignores the
optimizer's argument.

An optimizer may have a learning rate of its own: warm-up, cosine and minimum are the run's times one factor. Decoupled
decay shrinks a weight by η·λ a step. With a learning rate that is k times as large it takes λ/k, so that weights shrink
as before (arXiv:2302.06675).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim._muon import _zeropower_via_newtonschulz

from assay.config import TrainingConfig
from assay.cost.matrix_updates import is_hidden_matrix
from assay.errors import UsageError
from assay.optimizers.bases import Decaying, Joined
from assay.step.program import NamedParameters, OptimizerLike, Program

Groups = Sequence[dict[str, Any]]


def decay_groups(parameters: NamedParameters, weight_decay: float) -> list[dict[str, Any]]:
    """Return two parameter groups: tensors of two or more dimensions decay, biases and gains do not."""
    matrices = [parameter for _, parameter in parameters if parameter.ndim >= 2]
    vectors = [parameter for _, parameter in parameters if parameter.ndim < 2]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def by_mesh(groups: Groups) -> list[dict[str, Any]]:
    """Split the groups by their tensors' device mesh: one kernel takes tensors of one mesh, or plain ones."""
    cut: dict[tuple[int, int | None], dict[str, Any]] = {}
    for index, group in enumerate(groups):
        for parameter in group["params"]:
            mesh = getattr(parameter, "device_mesh", None)
            key = (index, None if mesh is None else hash(mesh))
            cut.setdefault(key, {**group, "params": []})["params"].append(parameter)
    return list(cut.values())


OptimizerRecipe = Callable[[NamedParameters], OptimizerLike]
Kernel = Literal["plain", "foreach", "fused"]


def adamw(training: TrainingConfig, kernel: Kernel = "plain") -> OptimizerRecipe:
    """Return AdamW (arXiv:1711.05101); the baseline uses the plain loop."""

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        groups = decay_groups(parameters, training.weight_decay)
        return torch.optim.AdamW(
            groups if kernel == "plain" else by_mesh(groups),
            lr=training.learning_rate,
            betas=(training.beta1, training.beta2),
            eps=training.epsilon,
            foreach=kernel == "foreach",
            fused=kernel == "fused",
        )

    return recipe


def at_factors(training: TrainingConfig, rates: Mapping[str, float]) -> OptimizerRecipe:
    """Return AdamW, one tensor after the other, in which some parameters have their factor of the learning rate.

    Their decay is divided by it. Groups are cut where the factor changes, so that the order of tensors stays.
    """

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        factors = {id(one): rates.get(name, 1.0) for name, one in parameters}
        groups = [
            {"params": list(same), "weight_decay": whole["weight_decay"] / factor, "rate_factor": factor}
            for whole in decay_groups(parameters, training.weight_decay)
            for factor, same in groupby(whole["params"], lambda one: factors[id(one)])
        ]
        betas = (training.beta1, training.beta2)
        return torch.optim.AdamW(
            groups, lr=training.learning_rate, betas=betas, eps=training.epsilon, foreach=False, fused=False
        )

    return recipe


def adam(training: TrainingConfig) -> OptimizerRecipe:
    """Return Adam (arXiv:1412.6980) with weight decay added to the gradient, one tensor after the other."""

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        return torch.optim.Adam(
            decay_groups(parameters, training.weight_decay),
            lr=training.learning_rate,
            betas=(training.beta1, training.beta2),
            eps=training.epsilon,
            foreach=False,
            fused=False,
        )

    return recipe


def sgd(training: TrainingConfig, momentum: float, *, nesterov: bool) -> OptimizerRecipe:
    """Return stochastic gradient descent, one tensor after the other; weight decay is added to the gradient."""

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        return torch.optim.SGD(
            decay_groups(parameters, training.weight_decay),
            lr=training.learning_rate,
            momentum=momentum,
            nesterov=nesterov,
            foreach=False,
            fused=False,
        )

    return recipe


def adafactor(training: TrainingConfig) -> OptimizerRecipe:
    """Return Adafactor (arXiv:1804.04235), one tensor after the other; its step is relative to the weight's size."""

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        groups = decay_groups(parameters, training.weight_decay)
        return torch.optim.Adafactor(groups, lr=training.learning_rate, foreach=False)

    return recipe


def at_rate(training: TrainingConfig, learning_rate: float) -> TrainingConfig:
    """Return the training with another peak learning rate.

    The minimum stays in proportion to the peak, and the decay of a step, η·λ, stays as it is.
    """
    factor = learning_rate / training.learning_rate
    changes = {
        "learning_rate": learning_rate,
        "min_learning_rate": training.min_learning_rate * factor,
        "weight_decay": training.weight_decay / factor,
    }
    return training.model_copy(update=changes)


def scale_schedule(program: Program, factor: float) -> Program:
    """Return the program with every step's learning rate multiplied by `factor`."""
    inner = program.schedule
    return replace(program, schedule=lambda step: factor * inner(step))


class Lion(Decaying):
    """Lion (arXiv:2302.06675, algorithm 2): steps of equal size in every element, by the sign of a momentum.

        u = sign(β₁·m + (1 − β₁)·g)      θ ← θ − η·(u + λ·θ)      m ← β₂·m + (1 − β₂)·g

    The momentum that is kept decays more slowly than the interpolated one of the step. Torch has no Lion.
    """

    def __init__(self, groups: Groups, lr: float, betas: tuple[float, float]) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    def update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Decay the weight, step along the signs, and update the moment."""
        beta1, beta2 = group["betas"]
        if not state:
            state["exp_avg"] = torch.zeros_like(parameter)
        moment = state["exp_avg"]
        direction = moment.lerp(gradient, 1 - beta1).sign_()
        self.decay(parameter, direction, group)
        parameter.add_(direction, alpha=-group["lr"])
        moment.lerp_(gradient, 1 - beta2)


def lion(training: TrainingConfig, betas: tuple[float, float]) -> OptimizerRecipe:
    """Return Lion as a recipe."""
    return lambda parameters: Lion(decay_groups(parameters, training.weight_decay), training.learning_rate, betas)


class Muon(Decaying):
    """Muon (kellerjordan.github.io/posts/muon) in steps of AdamW's size (arXiv:2502.16982), as torch computes it.

    b ← μ·b + (1 − μ)·g      O = NewtonSchulz(μ·b + (1 − μ)·g)      θ ← θ − η·(0.2·√max(rows, columns)·O + λ·θ)
    """

    def __init__(self, hidden: list[torch.nn.Parameter], **options: float) -> None:
        super().__init__(hidden, options)

    def update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Update the momentum, decay the weight, and step along the nearest orthogonal matrix."""
        momentum = group["momentum"]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        direction = gradient.lerp(state["momentum_buffer"], momentum)
        direction = _zeropower_via_newtonschulz(direction, (3.4445, -4.7750, 2.0315), 5, 1e-7)
        direction, size = self.sized(direction, state, group)
        self.decay(parameter, direction, group)
        parameter.add_(direction, alpha=-group["lr"] * size)

    def sized(self, orthogonal: Tensor, state: dict[str, Any], group: dict[str, Any]) -> tuple[Tensor, float]:
        """Return the direction of the step, and the number that gives it AdamW's size."""
        return orthogonal, 0.2 * math.sqrt(max(orthogonal.shape))


class NorMuon(Muon):
    """NorMuon (arXiv:2510.05491, algorithm 1): each row of Muon's direction is divided by the root of its mean square.

    v ← β₂·v + (1 − β₂)·mean of O² by row      Ô = O / (√v + ε)      θ ← θ − η·(0.2·√(rows·columns)·Ô/‖Ô‖ + λ·θ)
    """

    def sized(self, orthogonal: Tensor, state: dict[str, Any], group: dict[str, Any]) -> tuple[Tensor, float]:
        """Return the normalized rows at their final size, in the weight's precision; the host reads no norm."""
        if "second_momentum_buffer" not in state:
            state["second_momentum_buffer"] = torch.zeros_like(state["momentum_buffer"][:, :1])
        square, epsilon = state["second_momentum_buffer"], group["eps"]
        direction = orthogonal.to(square.dtype)
        rows = torch.linalg.vector_norm(direction, dim=1, keepdim=True, dtype=torch.float32)
        square.lerp_(rows.square().div_(direction.shape[1]).to(square.dtype), 1 - group["beta2"])
        factors = 1 / (square.float().sqrt() + epsilon)
        factors = factors / (torch.linalg.vector_norm(rows * factors) + epsilon)
        return direction.mul_(factors.to(square.dtype)), 0.2 * math.sqrt(direction.numel())


def muon(training: TrainingConfig, momentum: float) -> OptimizerRecipe:
    """Return Muon for the hidden matrices and AdamW for all else."""
    return _beside_adamw(training, lambda hidden, **rates: Muon(hidden, momentum=momentum, **rates))


def normuon(training: TrainingConfig, momentum: float, beta2: float, epsilon: float) -> OptimizerRecipe:
    """Return NorMuon for the hidden matrices and AdamW for all else."""
    return _beside_adamw(
        training, lambda hidden, **rates: NorMuon(hidden, momentum=momentum, beta2=beta2, eps=epsilon, **rates)
    )


def _beside_adamw(training: TrainingConfig, orthogonal: Callable[..., OptimizerLike]) -> OptimizerRecipe:
    """Return a recipe whose hidden matrices are updated by `orthogonal`, and embeddings, heads and vectors by AdamW.

    Both have steps of one size, and so share a learning rate and a weight decay.
    """

    def recipe(parameters: NamedParameters) -> OptimizerLike:
        hidden = [one for name, one in parameters if is_hidden_matrix(name, one.ndim)]
        rest = [(name, one) for name, one in parameters if not is_hidden_matrix(name, one.ndim)]
        rates = {"lr": training.learning_rate, "weight_decay": training.weight_decay}
        # Given a single parameter, one of the two optimizers has none.
        return Joined([*([orthogonal(hidden, **rates)] if hidden else []), *([adamw(training)(rest)] if rest else [])])

    return recipe


class CautiousAdamW(Decaying):
    """AdamW in torch's plain arithmetic, which decays an element only if its first moment has its sign."""

    cautious = True

    def __init__(self, groups: Groups) -> None:
        super().__init__(groups, {})

    def update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Update both moments, decay by the first one's sign, and step."""
        beta1, beta2 = group["betas"]
        if not state:
            state["step"] = torch.tensor(0.0)
            state.update({name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")})
        state["step"] += 1
        done, mean, square = state["step"].item(), state["exp_avg"], state["exp_avg_sq"]
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        self.decay(parameter, mean, group)
        root = square.sqrt().div_((1 - beta2**done) ** 0.5).add_(group["eps"])
        parameter.addcdiv_(mean, root, value=-group["lr"] / (1 - beta1**done))


def cautious(recipe: OptimizerRecipe) -> OptimizerRecipe:
    """Return a recipe whose decoupled decay spares elements that the step moves away from zero (arXiv:2510.12402)."""
    return lambda parameters: _cautious(recipe(parameters))


def _cautious(optimizer: OptimizerLike) -> OptimizerLike:
    if isinstance(optimizer, Joined):
        return Joined([_cautious(one) for one in optimizer.optimizers])
    if isinstance(optimizer, Decaying):
        optimizer.cautious = True
        return optimizer
    if type(optimizer) is not torch.optim.AdamW:
        raise UsageError(f"cautious_decay does not know the decay of {type(optimizer).__name__}; leave one of them out")
    return CautiousAdamW(optimizer.param_groups)
