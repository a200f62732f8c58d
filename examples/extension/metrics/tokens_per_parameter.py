"""A metric: tokens that a run trained on, by parameter."""

from assay.analysis.metrics import Metric
from assay.records.run import RunResult


def _ratio(run: RunResult) -> float | None:
    """Return tokens by parameter; None where the parameters are not known, as in a run that failed."""
    return run.tokens / run.parameters if run.parameters else None


TOKENS_PER_PARAMETER = Metric(
    name="tokens_per_parameter",
    title="tokens per parameter",
    unit="ratio",
    better="higher",
    kind="exact",
    meaning="Tokens that the run has read, repeated ones included, over the parameters of its model.",
    of=_ratio,
)
