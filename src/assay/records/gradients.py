"""Gradients as data: scale by module, agreement of micro-batches, and noise scale."""

from assay.records.base import Record


class ModuleGradient(Record):
    """Scale of one module's gradient and weights. A root mean square is comparable between modules of any size."""

    module: str
    parameters: int
    gradient_rms: float
    """Root mean square of the mean gradient over all tokens, in nats per unit of weight."""
    gradient_norm: float
    """Euclidean norm of the same gradient."""
    weight_rms: float


class NoiseScale(Record):
    """The simple gradient noise scale tr(Σ)/|G|² of McCandlish et al. 2018 (arXiv:1812.06162), appendix A.1."""

    sequences: float
    """The scale as a number of sequences."""
    standard_error: float | None
    """Its standard error by the jackknife over micro-batches; None if a part of them shows no gradient."""
    squared_gradient: float
    """Unbiased estimate of |G|², the squared norm of the true gradient."""
    noise: float
    """Unbiased estimate of tr(Σ), the variance of one sequence's gradient, summed over parameters."""


class GradientProbe(Record):
    """Gradients of several micro-batches, each on its own, at the weights of a checkpoint."""

    run: str
    steps: int
    """Training steps before the checkpoint."""
    micro_batches: int
    sequences: int
    """Sequences of each micro-batch."""
    tokens_per_sequence: int
    loss: float
    """Mean loss in nats per token over all micro-batches, without dropout."""
    gradient_norm: float
    """Norm of the mean gradient over all micro-batches."""
    micro_batch_norm: float
    """Root mean square of the norms of the micro-batches' gradients."""
    mean_cosine: float | None
    """Mean cosine between the gradients of two micro-batches; None if one of them is zero."""
    noise_scale: NoiseScale | None
    """None if the noise hides the gradient: the estimate of |G|² is not positive."""
    modules: tuple[ModuleGradient, ...]
    """Embedding, each block, final norm, and the head unless its weight is the embedding's."""
    notes: tuple[str, ...] = ()
