"""Products in float8, wrong."""

from typing import Any

import torch

from optimizations.mutations.mutant import Mutant, rewritten
from optimizations.mutations.precision import rounded, wide_head
from optimizations.mutations.rules import around

_APPLY, _SCALE = "assay.optimizations.fp8:Fp8.apply", "torchao.float8.float8_utils:amax_to_scale"
_LAYERS, _BEST = 'name.startswith("blocks.")', "torch.finfo(float8_dtype).max /"


def _other_formats() -> Any:
    from torchao.float8.config import CastConfig, Float8LinearConfig

    coarse = CastConfig(target_dtype=torch.float8_e5m2)
    return Float8LinearConfig(cast_config_input=coarse, cast_config_weight=coarse)


MUTANTS = (
    Mutant(
        "first block only", "Only the first block is in float8.", rewritten(_APPLY, (_LAYERS, '"blocks.0." in name'))
    ),
    Mutant("MLP only", "Attention's layers stay as they were.", rewritten(_APPLY, (_LAYERS, '"mlp" in name'))),
    Mutant(
        "one layer forgotten",
        "The last projection stays as it was.",
        rewritten(_APPLY, (_LAYERS, f'{_LAYERS} and name != "blocks.3.mlp.down"')),
    ),
    Mutant(
        "saturated",
        "Scales are four times too large, so the largest numbers are cut off.",
        rewritten(_SCALE, (_BEST, f"4 * {_BEST}")),
    ),
    Mutant(
        "scale too small",
        "Scales are a thousandth of the best, so small numbers are lost.",
        rewritten(_SCALE, (_BEST, f"1e-3 * {_BEST}")),
    ),
    Mutant(
        "other formats",
        "Inputs and weights are in E5M2, which has fewer digits.",
        rewritten(
            _APPLY,
            ("convert_to_float8_training(part,", "convert_to_float8_training(part, config=formats(),"),
            formats=_other_formats,
        ),
    ),
    Mutant(
        "biases forgotten",
        "Layers in float8 have no bias.",
        rewritten("torchao.float8.float8_linear:Float8Linear.forward", ("if self.bias is not None:", "if False:")),
    ),
    Mutant("head in float32", "The head is left out of autocast.", wide_head("fp8")),
    Mutant("weights rounded", "Weights are rounded to 16 bits after every update.", around("fp8", after=rounded)),
)
