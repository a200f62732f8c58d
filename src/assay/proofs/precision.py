"""Evidence of a precision in a trace: products computed in it; weights, gradients and state stored in it."""

from collections.abc import Mapping

from assay.config import ResolvedRun
from assay.records.trace import Phase, Trace

_COUNT_BYTES = 4
"""Bytes of the update count that torch keeps for each parameter, in float32."""


_NARROW = ("bfloat16", "float16")


def products_in(dtype: str, trace: Trace, run: ResolvedRun) -> tuple[str, bool]:
    """Return (observation, verdict) for a step's products under autocast.

    The verdict is True if no weight has 16 bits, and all products are in `dtype` except those of routers and of unfused
    attention.
    """
    low, unfused = trace.contractions(dtype=dtype), _unfused_products(trace)
    routers = _router_products(trace, run, unfused)
    total = trace.contractions() - routers - sum(unfused.values())
    observed = f"{low} of {total} matmuls in {dtype}{_beside(unfused)}"
    if routers:
        observed += f", and {routers} of routers in float32"
    if narrow := sum(one.dtype in _NARROW for one in trace.parameters):
        observed += f", but {narrow} of {len(trace.parameters)} weights are stored in 16 bits"
    islands = run.model.own is not None and 0 < low < total
    if islands:
        observed += f"; {run.model.own} keeps the others in 32 bits itself"
    return observed, (0 < low == total or islands) and not narrow


def held_in_16_bits(dtype: str, trace: Trace) -> tuple[str, bool]:
    """Return (observation, verdict) for a step's products, weights, gradients and optimizer state.

    The verdict is True if all of them have 16 bits a number, except the products of unfused attention.
    """
    low, unfused, memory = trace.contractions(dtype=dtype), _unfused_products(trace), trace.memory
    total = trace.contractions() - sum(unfused.values())
    narrow = sum(one.dtype == dtype for one in trace.parameters)
    wide = sum(memory.whole_state_bytes.get(one, 0) for one in ("float32", "float64"))
    # Allowed in 32 bits: update counts, and the scales and tables of state that is narrower still.
    spared = _COUNT_BYTES * len(trace.trained) + trace.trained_bytes // 4
    observed = (
        f"{low} of {total} matmuls and {narrow} of {len(trace.parameters)} weights in {dtype}{_beside(unfused)}; "
        f"{memory.parameter_bytes} bytes of weights, {memory.gradient_bytes} of gradients and "
        f"{memory.whole_optimizer_state_bytes} of optimizer state"
    )
    held = 0 < narrow == len(trace.parameters) and memory.gradient_bytes <= memory.parameter_bytes
    return observed, 0 < low == total and held and wide <= spared


def loss_scale_evidence(trace: Trace) -> tuple[str, bool]:
    """Return (observation, verdict) for the loss scale.

    The verdict is True if it multiplied every loss, divided the gradients once before the update, and has a value that
    is due. The kernel of torch's scaler shows the division. In a CUDA graph the multiplication is not seen.
    """
    times, scaling = trace.count("_amp_foreach_non_finite_check_and_unscale_", phase="update"), trace.precision.scaling
    observed = f"gradients divided {times} times by the loss scale"
    whole = (scaling.losses, scaling.factors) == (trace.forwards, (scaling.value,))
    multiplied = whole or trace.graphs.graph_replays > 0
    if not multiplied:
        factors = " and ".join(f"{one:g}" for one in scaling.factors) or "nothing"
        observed += f", but {scaling.losses} of {trace.forwards} losses were multiplied by {factors}"
    due = scaling.due is None or scaling.due[0] <= scaling.value <= scaling.due[1]
    if scaling.due is not None and not due:
        observed += f", and the scale is {scaling.value:g} instead of {scaling.due[0]:g}"
    return observed, times == 1 and multiplied and due


def not_scaled(trace: Trace) -> tuple[str, bool]:
    """Return (observation, verdict) for a step without a loss scale. The verdict is True if none was in force."""
    divided, scaling = trace.count("_amp_foreach_non_finite_check_and_unscale_"), trace.precision.scaling
    factors = [one for one in scaling.factors if one != 1.0]
    if divided or factors or scaling.value != 1.0:
        return f"losses were multiplied by {scaling.value:g}, and gradients divided {divided} times", False
    return "no loss was scaled", True


def _unfused_products(trace: Trace) -> dict[Phase, int]:
    """Number of products of torch's unfused attention by phase; they are in float32 for any input dtype.

    There are two in forward for each of its softmaxes, which no other attention has, and four in backward. Products
    kept for backward are not recomputed.
    """
    once, again = (2 * trace.count("aten._safe_softmax", phase=phase) for phase in ("forward", "recompute"))
    again = min(again, trace.contractions(dtype="float32", phase="recompute"))
    return {"forward": once, "backward": 2 * once, "recompute": again}


def _beside(unfused: Mapping[Phase, int]) -> str:
    count = sum(unfused.values())
    return f", and {count} of unfused attention in float32" if count else ""


def _router_products(trace: Trace, run: ResolvedRun, unfused: Mapping[Phase, int]) -> int:
    """Number of products of a mixture's routers, which stay in float32.

    Each router has one in forward, two in backward, and one more if its block is recomputed. Returns 0 if the counts
    do not fit.
    """
    if run.model.n_expert is None:
        return 0
    layers = run.model.n_layer * trace.forwards
    found = {one: trace.contractions(dtype="float32", phase=one) - attention for one, attention in unfused.items()}
    expected = found["forward"] == layers and found["backward"] == 2 * layers and found["recompute"] <= layers
    return sum(found.values()) if expected else 0
