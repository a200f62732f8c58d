"""A padded vocabulary, wrong."""

from optimizations.mutations.mutant import Mutant, replaced, rewritten

_BARRED, _PADDED = (
    "assay.optimizations.vocab_padding.padded_model:_barred",
    "assay.optimizations.vocab_padding.padded_model:pad_vocabulary",
)
_APPLY = "assay.optimizations.vocab_padding:VocabPadding.apply"

MUTANTS = (
    Mutant(
        "padding takes part",
        "Rows of the padding take part in the softmax.",
        rewritten(_BARRED, ('float("-inf")', "0.0")),
    ),
    Mutant(
        "barred a little",
        "Logits of the padding are lowered by 10, and not to −∞.",
        rewritten(_BARRED, ('float("-inf")', "-10.0")),
    ),
    Mutant(
        "padding not zero",
        "Rows of the padding begin as random ones, and decay.",
        rewritten(_APPLY, ("zero_padding(program.weights.initialize, tokens)", "program.weights.initialize")),
    ),
    Mutant(
        "head only",
        "The embedding keeps its odd number of rows.",
        rewritten(_PADDED, ("_widen(module.token, rows)", "pass"), ("module.token.num_embeddings = rows", "pass")),
        {"model": {"tie_embeddings": False}},
    ),
    Mutant(
        "wrong multiple",
        "The size is a multiple of 32, where 64 was asked for.",
        replaced("assay.optimizations.vocab_padding:VocabPadding._rows", lambda self, run: 96),
        {"model": {"vocab_size": 65}},
    ),
    Mutant(
        "one row too many",
        "The size is one more than a multiple.",
        replaced("assay.optimizations.vocab_padding:VocabPadding._rows", lambda self, run: 65),
    ),
    Mutant(
        "one token favoured",
        "The logit of token 0 carries a bias.",
        rewritten(
            _BARRED,
            ("return torch.zeros(rows, device=device, dtype=dtype)", "return torch.eye(1, rows, device=device)[0]"),
        ),
    ),
    Mutant(
        "takes part late",
        "Late in the run rows of the padding take part in the softmax.",
        replaced(
            "assay.optimizations.vocab_padding.padded_model:_barred",
            lambda tokens, rows, device, dtype: None,
            late=True,
        ),
        late=True,
    ),
)
