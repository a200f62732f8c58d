"""Warnings of shapes that are not whole tiles."""

from assay.advise.shapes import warnings
from assay.config import ModelConfig


def _of(on_gpu: bool, **shape: int) -> list[str]:
    whole = {"n_embd": 128, "n_head": 2, "vocab_size": 64, "n_hidden": 512}
    return list(warnings(ModelConfig(**(whole | shape)), on_gpu))


def test_whole_tiles_are_not_warned_of() -> None:
    assert _of(True) == _of(False) == []


def test_widths_and_vocabularies_that_are_no_whole_tiles_are_named_with_the_next_that_is() -> None:
    (sentence,) = _of(False, vocab_size=50257)
    assert "50,257" in sentence
    assert "model.vocab_size=50304" in sentence
    (sentence,) = _of(True, n_hidden=520)
    assert "the MLP's width is 520, no multiple of 64" in sentence
    assert "576" in sentence
    assert _of(False, n_hidden=520) == []
    assert any("model.n_embd is 100, no multiple of 8" in one for one in _of(False, n_embd=100))
