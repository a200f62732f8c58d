"""AdamW with moments in bfloat16, wrong."""

from optimizations.mutations.mutant import Mutant, rewritten
from optimizations.mutations.rules import decays_vectors, only

_UPDATE = "assay.optimizations.adamw_bf16_state.step:NarrowAdamW.update"

MUTANTS = (
    Mutant(
        "no bias correction",
        "The step is not corrected for moments that start at zero.",
        rewritten(
            _UPDATE,
            (".div_((1 - beta2**done) ** 0.5)", ""),
            ('-group["lr"] / (1 - beta1**done)', '-group["lr"]'),
        ),
    ),
    Mutant(
        "correction without a root",
        "The second moment's correction is applied outside of the root.",
        rewritten(_UPDATE, (".div_((1 - beta2**done) ** 0.5)", ".div_(1 - beta2**done)")),
    ),
    Mutant(
        "epsilon inside the root",
        "Epsilon is added to the second moment, and not to its root.",
        rewritten(
            _UPDATE,
            (
                'square.sqrt_().div_((1 - beta2**done) ** 0.5).add_(group["eps"])',
                'square.div_(1 - beta2**done).add_(group["eps"]).sqrt_()',
            ),
        ),
    ),
    Mutant(
        "one beta",
        "The second moment decays as fast as the first.",
        rewritten(
            _UPDATE,
            (
                "mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)",
                "mul_(beta1).addcmul_(gradient, gradient, value=1 - beta1)",
            ),
        ),
    ),
    Mutant(
        "steps along rounded moments",
        "The step is taken with the rounded first moment.",
        rewritten(_UPDATE, ("parameter.addcdiv_(mean,", 'parameter.addcdiv_(state["exp_avg"].to(root.dtype),')),
    ),
    Mutant(
        "rounds towards zero",
        "Moments lose their lower 16 bits in place of being rounded.",
        rewritten(
            _UPDATE,
            (
                'state["exp_avg"].copy_(mean)',
                'state["exp_avg"].copy_((mean.view(torch.int32) & -65536).view(torch.float32))',
            ),
            (
                'state["exp_avg_sq"].copy_(square)',
                'state["exp_avg_sq"].copy_((square.view(torch.int32) & -65536).view(torch.float32))',
            ),
        ),
    ),
    Mutant(
        "weights in 16 bits",
        "The weight itself is rounded to bfloat16 after every update.",
        rewritten(
            _UPDATE,
            (
                "    parameter.addcdiv_(mean, root,",
                "    parameter.copy_(parameter.bfloat16())\n    parameter.addcdiv_(mean, root,",
            ),
        ),
    ),
    Mutant(
        "decay without the rate",
        "Weights decay by a thousandth of λ whatever the learning rate is.",
        rewritten(_UPDATE, ('1 - group["lr"] * group["weight_decay"]', '1 - 1e-3 * group["weight_decay"]')),
    ),
    Mutant("biases decay", "Biases and gains decay.", decays_vectors("adamw_bf16_state")),
    Mutant(
        "embedding left out",
        "The embedding is never updated.",
        only("adamw_bf16_state", lambda n, name: name != "embedding.token.weight"),
    ),
    Mutant(
        "moment stands still late",
        "Late in the run the second moment is no longer written back.",
        rewritten(_UPDATE, ('    state["exp_avg_sq"].copy_(square)\n', ""), late=True),
        late=True,
    ),
)
