"""Time: the step, and tokens per second."""

from dataclasses import replace

from assay.analysis.metrics.base import Metric
from assay.config.run import ResolvedRun

STEP_SECONDS = Metric(
    name="step_seconds",
    title="step time",
    unit="seconds",
    better="lower",
    kind="timed",
    meaning="The median optimizer step: its geometric mean over the timed blocks of each process and over processes. "
    "Evaluation, compilation, the trace and the memory pass are not part of it.",
    predicted=True,
    of=lambda result: result.step_seconds.median if result.step_seconds else None,
    of_block=lambda block: block.median_step_seconds,
)

TOKENS_PER_SECOND = Metric(
    name="tokens_per_second",
    title="tokens/s",
    unit="per_second",
    better="higher",
    kind="timed",
    meaning="Tokens of one optimizer step divided by the step time.",
    of_block=lambda block: block.tokens / block.steps / block.median_step_seconds,
    per_step=lambda run: run.tokens_per_step,
)


def rate_of(run: ResolvedRun) -> Metric:
    """Return the rate of such a run, which counts what its losses are means over."""
    said = f"{run.counted.capitalize()} of one optimizer step divided by the step time."
    return replace(TOKENS_PER_SECOND, title=f"{run.counted}/s", meaning=said)
