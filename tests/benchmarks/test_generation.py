"""The benchmark of generation: its sides add the same tokens, and a cache that changes one is told in the exit code."""

import json

import pytest

from assay.config import load


def test_sides_add_equal_tokens_and_the_cache_has_its_formula(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import generation  # type: ignore[import-not-found]

    model = load("llama-tiny", ["model.vocab_size=61", "model.context_length=12"]).model
    monkeypatch.setattr(generation, "MODELS", {"tiny": model})
    assert generation.main(["--pairs", "2", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["tokens"], row["equal"]) == (11, True)
    assert row["cache_bytes"] == 2 * 4 * model.n_layer * model.kv_heads * model.head_dim * 12
    assert row["ratio"] == sorted(row["ratio"])


def test_an_unequal_token_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import generation

    row = generation.Row("tiny", 3, 96, 2.0, 1.0, (1.0, 2.0, 3.0), equal=False)
    monkeypatch.setattr(generation, "measure", lambda *asked: row)
    assert generation.main([]) == 1
    assert "UNEQUAL" in capsys.readouterr().out
