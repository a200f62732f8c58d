"""Cautious decay, wrong."""

from optimizations.mutations.mutant import LAST, Mutant, rewritten
from optimizations.mutations.rules import decays_vectors

_DECAY = "assay.optimizers.bases:Decaying.decay"
_UPDATE = "assay.optimizers.recipes:CautiousAdamW.update"
_MUON = "assay.optimizers.recipes:Muon.update"

MUTANTS = (
    Mutant(
        "all decay",
        "Signs are compared, and every element decays all the same.",
        rewritten(_DECAY, ("aligned.mul_(-amount).add_(1)", "1 - amount")),
    ),
    Mutant(
        "the others",
        "Elements decay whose sign is not that of their update.",
        rewritten(_DECAY, (".mul_(parameter)", ".neg_().mul_(parameter)")),
    ),
    Mutant(
        "by the gradient",
        "The sign compared is that of the gradient in place of the update's.",
        rewritten(_UPDATE, ("self.decay(parameter, mean, group)", "self.decay(parameter, gradient, group)")),
    ),
    Mutant(
        "the moment before",
        "The sign compared is that of the moment before this step's gradient joins it.",
        rewritten(
            _UPDATE,
            ("    self.decay(parameter, mean, group)\n", ""),
            ("    mean.lerp_(", "    self.decay(parameter, mean, group)\n    mean.lerp_("),
        ),
    ),
    Mutant(
        "whole rows",
        "A row decays as a whole, if most of its elements agree.",
        rewritten(
            _DECAY,
            (
                ".ge_(0)\n",
                ".ge_(0)\n        aligned = aligned.mean(-1, keepdim=True).round().expand_as(aligned).clone()\n",
            ),
        ),
    ),
    Mutant(
        "twice the decay",
        "Elements that decay do so twice as fast, as half of them are spared.",
        rewritten(_DECAY, ("mul_(-amount)", "mul_(-2 * amount)")),
    ),
    Mutant(
        "decay without the rate",
        "Weights decay by a thousandth of λ whatever the learning rate is.",
        rewritten(_DECAY, ('group["lr"] * group', "1e-3 * group")),
    ),
    Mutant("biases decay", "Biases and gains decay.", decays_vectors("cautious_decay")),
    Mutant(
        "no bias correction",
        "AdamW's step is not corrected for moments that start at zero.",
        rewritten(_UPDATE, (".div_((1 - beta2**done) ** 0.5)", ""), ("/ (1 - beta1**done)", "")),
    ),
    Mutant(
        "Muon's matrices decay whole",
        "Beside Muon only AdamW's tensors decay cautiously.",
        rewritten(
            "assay.optimizers.recipes:_cautious",
            ("[_cautious(one) for", "[one if isinstance(one, Muon) else _cautious(one) for"),
        ),
        run={"stack": "cautious_decay+muon"},
    ),
    Mutant(
        "all decay late",
        "Late in the run every element decays.",
        rewritten(_DECAY, ("aligned.mul_(-amount).add_(1)", "1 - amount"), late=True),
        late=True,
    ),
    Mutant(
        "not at zero",
        "Elements do not decay where the update is zero, as in rows of tokens that were not seen.",
        rewritten(_DECAY, (".ge_(0)", ".ge_(0).mul_(direction.sign().abs())")),
        run={"model": {"tie_embeddings": False}},
    ),
    Mutant(
        "first signs kept",
        "The signs compared in the first step are kept for all others.",
        rewritten(
            _DECAY,
            ("aligned = ", "self.first = getattr(self, 'first', {})\n        aligned = "),
            (".ge_(0)\n", ".ge_(0)\n        aligned = self.first.setdefault(id(parameter), aligned.clone()).clone()\n"),
        ),
    ),
    Mutant(
        "rate of the first group",
        "All groups decay at the rate of the first one.",
        rewritten(_DECAY, ('group["lr"] * group', 'self.param_groups[0]["lr"] * group')),
        run={"model": {"tie_embeddings": False}, "stack": "cautious_decay+mup:base_width=8"},
    ),
    Mutant(
        "the momentum that is kept",
        "Beside Lion the sign compared is that of the kept momentum, and not of the step.",
        rewritten(
            "assay.optimizers.recipes:Lion.update",
            ("self.decay(parameter, direction, group)", "self.decay(parameter, moment, group)"),
        ),
        run={"stack": "cautious_decay+lion"},
    ),
    Mutant(
        "Muon by the momentum",
        "Beside Muon the sign compared is that of the momentum before it is made orthogonal.",
        rewritten(
            _MUON,
            ("self.decay(parameter, direction, group)", "self.decay(parameter, state['momentum_buffer'], group)"),
        ),
        run={"stack": "cautious_decay+muon"},
    ),
    Mutant(
        "slightly more in the last step",
        "From step 7 on decay is a fiftieth faster.",
        rewritten(_DECAY, ("mul_(-amount)", "mul_(-1.02 * amount)"), late=True, since=LAST),
        late=True,
    ),
)
