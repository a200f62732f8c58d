"""What a trace shows of a precision: products that ran in it; weights, gradients and state that are held in it."""

from assay.config import Run
from assay.step.trace import Trace

_COUNT_BYTES = 4
"""Of the number of updates that torch keeps of each parameter, in float32."""


def products_in(dtype: str, trace: Trace, run: Run) -> tuple[str, bool]:
    """What was observed of a step's products under autocast, and whether all but a router's are in `dtype`."""
    low, total = trace.contractions(dtype=dtype), trace.contractions()
    routers = _router_products(trace, run)
    observed = f"{low} of {total - routers} matmuls in {dtype}"
    if routers:
        observed += f", and the {routers} of the routers in float32"
    return observed, low > 0 and low + routers == total


def held_in_16_bits(dtype: str, trace: Trace) -> tuple[str, bool]:
    """What was observed of products and of what is held, and whether all of it takes 16 bits a number."""
    low, total = trace.contractions(dtype=dtype), trace.contractions()
    narrow = sum(one.dtype == dtype for one in trace.parameters)
    wide = sum(trace.whole_state_bytes.get(one, 0) for one in ("float32", "float64"))
    # Counts of updates; scales and tables, where state is narrower still.
    spared = _COUNT_BYTES * len(trace.parameters) + trace.whole_parameter_bytes // 4
    observed = (
        f"{low} of {total} matmuls and {narrow} of {len(trace.parameters)} weights in {dtype}; "
        f"{trace.parameter_bytes} bytes of weights, {trace.gradient_bytes} of gradients and "
        f"{trace.whole_optimizer_state_bytes} of optimizer state"
    )
    held = 0 < narrow == len(trace.parameters) and trace.gradient_bytes <= trace.parameter_bytes
    return observed, 0 < low == total and held and wide <= spared


def unscaled(trace: Trace) -> tuple[str, bool]:
    """Whether gradients were divided by a loss scale, before the update: the kernel of torch's scaler tells."""
    times = trace.count("_amp_foreach_non_finite_check_and_unscale_", phase="update")
    return f"gradients divided by a loss scale {times} times", times == 1


def _router_products(trace: Trace, run: Run) -> int:
    """Products of a mixture's routers, which stay in float32: one forward, two backward, and one more where a block
    ran again; 0 where that is not what ran."""
    if run.model.n_expert is None:
        return 0
    layers = run.model.n_layer * trace.forwards
    found = {phase: trace.contractions(dtype="float32", phase=phase) for phase in ("forward", "backward", "recompute")}
    expected = found["forward"] == layers and found["backward"] == 2 * layers and found["recompute"] <= layers
    return sum(found.values()) if expected else 0
