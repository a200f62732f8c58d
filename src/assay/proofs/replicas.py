"""Checks for the proofs of replicas: each rank has its share of the batch, and gradients are summed once a step."""

from assay.config import ResolvedRun
from assay.records.trace import Phase, Trace

_FIGURES = 24
"""Largest number of bytes of a step's figures: its loss, and the norms of two activations."""


def wrong_share(trace: Trace, run: ResolvedRun) -> str:
    """Describe this rank's sequences if they are not its equal share of a step's; empty if they are."""
    ranks, whole = trace.ranks.get("dp", 1), run.sequences_per_step
    if trace.batch.sequences * ranks == whole:
        return ""
    return f"; {trace.batch.sequences} of the batch's {whole} sequences on this rank of {ranks}"


def summed_once(trace: Trace, run: ResolvedRun) -> tuple[str, bool]:
    """Describe the bytes of gradients that replicas sum, and return whether they sum each gradient exactly once."""
    # Under a pipeline the all-reduce begins after the last stage's backward; torch issues it from forward.
    phases: tuple[Phase, ...] = ("backward", "forward") if trace.ranks.get("pp", 1) > 1 else ("backward",)
    reduced = sum(trace.communicated("all_reduce", axis="dp", phase=phase) for phase in phases)
    shared = sum(one.held_bytes for one in trace.parameters if "dp" not in one.divided_over)
    # Forward also sums a step's figures, and the loads of a mixture's experts.
    beside = _FIGURES + 16 * trace.forwards * len(trace.blocks) * (run.model.n_expert or 0)
    exact = reduced == shared or ("forward" in phases and shared < reduced <= shared + beside)
    return f"{reduced} bytes summed over the ranks, for {shared} bytes of gradients", shared > 0 and exact
