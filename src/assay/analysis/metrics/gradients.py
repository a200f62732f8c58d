"""Gradients at the end of training: their scale by module, and the agreement of those of micro-batches."""

from assay.analysis.metrics.base import Metric
from assay.records.gradients import ModuleGradient
from assay.records.run import RunResult


def _final_norm(result: RunResult) -> ModuleGradient | None:
    return next((one for one in result.loss.gradients if one.module == "final norm"), None)


def _final_norm_gradient(result: RunResult) -> float | None:
    found = _final_norm(result)
    return None if found is None else found.gradient_rms


def _final_norm_weight(result: RunResult) -> float | None:
    found = _final_norm(result)
    return None if found is None else found.weight_rms


def _ratio(result: RunResult) -> float | None:
    blocks = [one.gradient_rms for one in result.loss.gradients if one.module.startswith("block ")]
    return blocks[0] / blocks[-1] if blocks and blocks[-1] else None


def _cosine(result: RunResult) -> float | None:
    return None if result.loss.gradient_probe is None else result.loss.gradient_probe.mean_cosine


def _noise_scale(result: RunResult) -> float | None:
    found = None if result.loss.gradient_probe is None else result.loss.gradient_probe.noise_scale
    return None if found is None else found.sequences


FINAL_NORM_GRADIENT = Metric(
    name="final_norm_gradient_rms",
    title="gradient of the final norm",
    unit="ratio",
    better="lower",
    kind="loss",
    meaning="Root mean square of the final norm's gradient, in a discarded step after the last one.",
    shown=False,
    of=_final_norm_gradient,
)

FINAL_NORM_WEIGHT = Metric(
    name="final_norm_weight_rms",
    title="weights of the final norm",
    unit="ratio",
    better="lower",
    kind="loss",
    meaning="Root mean square of the final norm's weights after the last step.",
    shown=False,
    of=_final_norm_weight,
)

BLOCK_GRADIENT_RATIO = Metric(
    name="block_gradient_ratio",
    title="gradient, first block over last",
    unit="ratio",
    better="lower",
    kind="loss",
    meaning="Root mean square of the first block's gradient over that of the last, in a discarded step at the end.",
    shown=False,
    of=_ratio,
)

GRADIENT_COSINE = Metric(
    name="gradient_cosine",
    title="cosine of gradients",
    unit="ratio",
    better="higher",
    kind="loss",
    meaning=(
        "Mean cosine between the gradients of two micro-batches, of the plain model at the weights that were trained. "
        "The run's optimizations and dropout do not compute them."
    ),
    shown=False,
    of=_cosine,
)

GRADIENT_NOISE_SCALE = Metric(
    name="gradient_noise_scale",
    title="noise scale (sequences)",
    unit="count",
    better="lower",
    kind="loss",
    meaning="Sequences of a batch from which larger ones help little, by the same gradients (McCandlish et al. 2018).",
    shown=False,
    of=_noise_scale,
)

PROBED = frozenset({GRADIENT_COSINE.name, GRADIENT_NOISE_SCALE.name})
"""Names of metrics that only runs with `training.gradient_probe` have; they are columns of such runs."""
