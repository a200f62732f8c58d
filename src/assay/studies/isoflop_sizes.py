"""Sizes of one model, and the runs that spend a number of FLOPs on them.

A size has a width. Its depth keeps the aspect ratio n_embd / n_layer of the base, rounded to whole blocks, and its
heads are as wide as the base's. Kaplan et al. 2020 found that the loss hardly depends on the shape at one N.

A run of C FLOPs trains on D = C / (6·N) tokens, in whole steps. N is counted in one of two ways:

    total           every distinct weight; a tied embedding counts once (Hoffmann et al. 2022)
    non_embedding   without the embeddings of tokens and positions (Kaplan et al. 2020)

In models of 20 thousand parameters with 256 bytes as tokens, two fifths are embeddings. The tied one is also the
projection to the vocabulary, whose products are part of the work. So `total` is the default. Both counts, and the FLOPs
that the estimator counts operator by operator, are in the points of a study.

The learning rate of a run is the base's × (width / base's width)^a × (steps / base's steps)^b. Wider models and longer
trainings need lower rates (Bjorck et al. 2024, arXiv:2409.19913). Warm-up takes the same share of the steps, and the
schedule, a cosine or wsd, ends with the run. One that ends elsewhere spoils a law (Hoffmann et al. 2022, appendix B).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from assay.config.loading import load
from assay.config.model import ModelConfig
from assay.config.run import ResolvedRun, Run, TrainingConfig
from assay.cost import parameter_count
from assay.errors import UsageError
from assay.optimizations import resolve_run

FLOPS_PER_PARAMETER_AND_TOKEN = 6
"""Two FLOPs a weight forward and four backward (Kaplan et al. 2020)."""

Count = Literal["total", "non_embedding"]

_FIXED = ("n_head_dim", "n_hidden", "n_kv_head", "n_expert", "init_from")
"""Settings of a model that say nothing of its other sizes."""


def counts(model: ModelConfig) -> dict[Count, int]:
    """Return N in both ways. Raises `UsageError` if the vocabulary is not known yet."""
    if model.vocab_size is None:
        raise UsageError("the size of a model depends on its vocabulary; give model.vocab_size for this tokenizer")
    every = parameter_count(model)
    tables = 1 if model.tie_embeddings else 2
    places = model.context_length if model.position == "learned" else 0
    return {"total": every, "non_embedding": every - model.n_embd * (tables * model.vocab_size + places)}


def check_base(base: Run) -> None:
    """Raise `UsageError` if the base has no sizes that only differ in width and depth."""
    for name in _FIXED:
        if getattr(base.model, name) is not None:
            raise UsageError(f"model.{name} is set, and fits one size only; leave it out of a study of scaling")
    if base.training.tokens is not None or base.training.seconds is not None:
        raise UsageError("training.tokens and training.seconds end runs early; a study of scaling decides their length")
    if base.training.decay_steps is not None or base.training.schedule not in ("cosine", "wsd"):
        raise UsageError(
            "a study of scaling needs the cosine schedule that ends with the run, or wsd; leave decay_steps out"
        )


def shape(base: Run, width: int) -> dict[str, int]:
    """Return the settings of a width. Raises `UsageError` if it has no whole number of heads."""
    head, aspect = base.model.head_dim, base.model.n_embd / base.model.n_layer
    if width < 1 or width % head:
        raise UsageError(f"the width {width} is no multiple of a head, which is {head} wide; choose one that is")
    return {
        "model.n_embd": width,
        "model.n_layer": max(1, int(width / aspect + 0.5)),
        "model.n_head": width // head,
    }


def run_at_width(base: Run, width: int) -> ResolvedRun:
    """Return the base at a width, with the vocabulary if it is known without text."""
    return resolve_run(load(base, [f"{key}={value}" for key, value in shape(base, width).items()])).with_vocabulary()


def tokens_for(flops: float, parameters: float) -> float:
    """Return D of C = 6·N·D."""
    return flops / (FLOPS_PER_PARAMETER_AND_TOKEN * parameters)


def steps_for(run: ResolvedRun, flops: float, count: Count) -> float:
    """Return the steps in which a size spends so many FLOPs, before they are rounded."""
    return tokens_for(flops, counts(run.model)[count]) / run.tokens_per_step


def flops_of(run: ResolvedRun, count: Count) -> float:
    """Return C = 6·N·D of a run."""
    return float(FLOPS_PER_PARAMETER_AND_TOKEN * counts(run.model)[count] * run.training.steps * run.tokens_per_step)


def warmup_steps(training: TrainingConfig, steps: int) -> int:
    """Return the steps of warm-up of a run: the same share as in the base."""
    return round(steps * min(1.0, training.warmup_steps / training.steps))


def run_of_size(
    size: ResolvedRun, base: Run, steps: int, rate: float, others: Mapping[str, object] = MappingProxyType({})
) -> ResolvedRun:
    """Return the run of a size for so many steps, with `rate` times the base's learning rates, and `others`."""
    training = base.training
    settings: Mapping[str, object] = {
        "training.steps": steps,
        "training.warmup_steps": warmup_steps(training, steps),
        "training.learning_rate": float(f"{training.learning_rate * rate:.4g}"),
        "training.min_learning_rate": float(f"{training.min_learning_rate * rate:.4g}"),
        **others,
    }
    return resolve_run(load(size.asked(), [f"{key}={value}" for key, value in settings.items()]))
