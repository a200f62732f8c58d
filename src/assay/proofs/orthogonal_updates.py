"""Checks for the proofs of optimizers that orthogonalize hidden matrices, and leave all else to AdamW."""

from assay.cost.optimizers.matrix import is_hidden_matrix
from assay.proofs.optimizer_updates import updated_by
from assay.records.trace import Trace

_PRODUCTS = 15
"""Products of one matrix: three in each of the five steps."""


def hidden_matrices(trace: Trace) -> set[str]:
    """Names of the hidden matrices that this process updates."""
    return {one.name for one in trace.trained if is_hidden_matrix(one.name, len(one.whole_shape))}


def orthogonal_updates(trace: Trace) -> tuple[str, bool]:
    """Describe the products and updates of a step, and return whether they are those of all parameters."""
    hidden = len(hidden_matrices(trace))
    products, rest = trace.contractions(phase="update", dtype="bfloat16"), trace.count("addcdiv_", phase="update")
    observed = f"{products} products updated {hidden} hidden matrices; AdamW updated {rest} other parameters"
    # The step of a matrix is added; AdamW's is divided by the root of its second moment.
    moved, divided = (updated_by(trace, f"aten.{one}") for one in ("add_.Tensor", "addcdiv_"))
    if (moved, divided) != (hidden, rest):
        observed += f"; {moved} matrices and {divided} others were updated completely"
    whole = products == _PRODUCTS * moved > 0 and moved == hidden and divided == rest
    return observed, whole and rest == len(trace.trained) - hidden
