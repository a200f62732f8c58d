"""Multiply the matrices of linear layers in 8 bits, by torchao; compute the rest in bfloat16.

Inputs and weights are rounded to E4M3, gradients to E5M2 (arXiv:2209.05433). Each tensor has a scale of its own, found
anew at every use, so no loss scale is needed. Weights, gradients and state stay float32, and no narrow copy of a weight
is kept. The head and the products inside attention stay bfloat16. Rounding costs passes over memory, so only wide
layers (several thousand) gain from it. Many small kernels find the scales and round the tensors; a compiler should fuse
them. A CPU without float8 products multiplies float32 copies instead: its rounding and saved tensors are a GPU's, its
time is not. With `compile`, the memory of a step is not predicted.
"""

from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from assay.config import ResolvedRun
from assay.hardware import ADA
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage, Unavailable
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected, Rounding, lossy

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from assay.cost import Cost
    from assay.hardware import Machine
    from assay.step.program import Program

_MULTIPLE = 16
"""Divisor of both sides of a matrix that the kernel needs; the gradient of a weight has tokens as one side."""

_TOO_SMALL = 1024 * 2048 * 1024
"""Rows times both sides of a matrix of a layer that was 20 % slower in float8, compiled, on an H100 (torchao)."""

_GRADIENT_ERROR = 0.5
"""Largest relative error of one gradient."""
_SLOPE_ERROR = 0.2
"""Largest error of a gradient's scale."""
_LOSS_ERROR = 1e-3
"""Largest relative error of the loss."""
_ROUNDED = 2**-7
"""Relative error that float8 must cause in some gradient."""
_NEAR = lossy(
    _GRADIENT_ERROR, at_least=_ROUNDED, slope=_SLOPE_ERROR, loss=_LOSS_ERROR, rounding=Rounding(dtype="float8")
)
_PRECISE, _COARSE = "float8_e4m3fn", "float8_e5m2"
"""Formats of inputs and weights, and of gradients."""


class Fp8(Optimization):
    """Linear layers in float8."""

    title: ClassVar = "float8 linear layers"
    stage: ClassVar = Stage.PRECISION
    numerics: ClassVar = Numerics.LOSSY
    saves: ClassVar = "time in the matrix products of wide layers"
    pays: ClassVar = "passes over memory to find scales and round; 3 bits of mantissa in products"
    sources: ClassVar = ("arXiv:2209.05433", "github.com/pytorch/ao")
    claims: ClassVar = frozenset({"forward precision"})
    traits: ClassVar = frozenset({"weights of another kind"})

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if machine.device(run.device) == "cuda" and (older := machine.older_than(ADA)):
            raise Unavailable(
                f"{older.name} cannot multiply in float8; use a GPU of compute capability 8.9 (Ada, Hopper) or newer"
            )
        if not machine.absent and find_spec("torchao") is None:
            raise Unavailable("fp8 needs torchao, which is not installed; pip install 'assay[low-bit]'")
        if run.model.n_expert is not None:
            raise Conflict("fp8 converts linear layers and no experts; use bf16_mixed for a mixture of experts")
        if run.ranks > 1:
            raise Conflict("fp8 runs on one device only; with several ranks use bf16_mixed")
        self._check_sides(run)

    def _check_sides(self, run: ResolvedRun) -> None:
        from assay.cost import parameters

        sides = {"n_embd": run.model.n_embd, "n_hidden": run.model.hidden, "context_length": run.model.context_length}
        for name, side in sides.items():
            if side % _MULTIPLE:
                nearest = -(-side // _MULTIPLE) * _MULTIPLE
                raise Conflict(
                    f"fp8 needs sizes in multiples of {_MULTIPLE}, and model.{name} is {side}; set it to {nearest}"
                )
        # No side of a block's matrices depends on the vocabulary, which may be unknown until the corpus is prepared.
        known = run.model.model_copy(update={"vocab_size": run.model.vocab_size or _MULTIPLE})
        for name, weight in parameters(known).items():
            if name.startswith("blocks.") and len(weight.shape) == 2 and any(one % _MULTIPLE for one in weight.shape):
                raise Conflict(
                    f"fp8 needs sizes in multiples of {_MULTIPLE}, and {name} is {weight.shape[0]} × "
                    f"{weight.shape[1]}; choose another model.n_head or model.n_kv_head"
                )

    def known_loss(self, run: ResolvedRun, machine: "Machine") -> str:
        widest = run.model.n_embd * max(run.model.hidden, 3 * run.model.n_embd)
        if run.training.batch_size * run.model.context_length * widest > _TOO_SMALL:
            return ""
        return "its layers are too small: rounding takes more time than 8 bits save (torchao's float8/README.md)"

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost.rewrites.float8 import float8
        from assay.cost.rewrites.low_precision import autocast

        return float8(autocast(cost, "bfloat16"), cost.block_sites)

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        import torch

        from assay.optimizers.quiet import importing_torchao
        from assay.step.float8_products import widen_products

        if program.device.type == "cpu":
            widen_products()
        with importing_torchao():
            from torchao.float8 import convert_to_float8_training
            from torchao.float8.float8_linear import Float8Linear

        for part in program.parts:
            convert_to_float8_training(part, module_filter_fn=lambda _, name: name.startswith("blocks."))
            for layer in part.modules():
                if isinstance(layer, Float8Linear):
                    layer.register_forward_pre_hook(_narrow)
        context = partial(torch.autocast, program.device.type, dtype=torch.bfloat16)
        precision = replace(program.precision, forward_contexts=(*program.precision.forward_contexts, context))
        return replace(program, precision=precision)

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        return expected.loosened(gradients=_NEAR)

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        of_a_block = 5 if run.model.activation == "swiglu" else 4
        layers = of_a_block * len(trace.blocks) * trace.forwards
        # Each layer multiplies once in forward, and twice in backward: for its input, and for its weight.
        forward, backward = (trace.count("_scaled_mm", phase=phase) for phase in ("forward", "backward"))
        rest = trace.contractions() - trace.count("_scaled_mm")
        narrow = trace.contractions(dtype="bfloat16")
        observed = (
            f"{forward} float8 products in forward and {backward} in backward of {layers} linear layers; "
            f"{narrow} of {rest} other products in bfloat16"
        )
        counted = 0 < layers == forward and backward == 2 * layers and narrow == rest
        wrong = _wrong_formats(trace, layers) or _wrong_scales(trace)
        return self.evidence(f"{observed}; {wrong}" if wrong else observed, counted and not wrong)


def _wrong_formats(trace: Trace, layers: int) -> str:
    """Describe wrong formats of the factors; empty if there are none."""
    # The gradient of a layer's output is the left factor of both products of its backward.
    due = {"forward": (_PRECISE, _PRECISE), "recompute": (_PRECISE, _PRECISE), "backward": (_COARSE, _PRECISE)}
    products = trace.precision.float8
    wrong = [one for one in products if one.formats != due.get(one.phase)]
    if wrong:
        listed = ", ".join(f"{one.count} of {' × '.join(one.formats)} in {one.phase}" for one in wrong)
        return f"products in wrong formats: {listed}"
    counted = {phase: sum(one.count for one in products if one.phase == phase) for phase in ("forward", "backward")}
    known = counted == {"forward": layers, "backward": 2 * layers}
    return "" if known else "the formats of some factors are unknown"


def _wrong_scales(trace: Trace) -> str:
    """Report the number of products that do not use the whole range of their formats; empty if there are none."""
    read = [one for one in trace.precision.float8 if one.full_scale is not None]
    full, count = sum(one.full_scale or 0 for one in read), sum(one.count for one in read)
    return "" if full == count else f"{count - full} of {count} products do not use the whole range of their formats"


def _narrow(layer: "Module", given: "tuple[Tensor, ...]") -> "tuple[Tensor, ...]":
    """Cast a layer's inputs to bfloat16. The layer itself does so only under CUDA's autocast."""
    import torch

    return tuple(one.to(torch.bfloat16) for one in given)
