import pytest

from assay.errors import legible, suggestion

NAMES = ["sgd", "sdpa_attention", "adamw_8bit", "training.steps", "training.target_loss", "ranks"]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("sdpa", "sdpa_attention"),
        ("SDPA_atention", "sdpa_attention"),
        ("sdg", "sgd"),
        ("training.step", "training.steps"),
        ("training.loss_target", "training.target_loss"),
        ("training.rank", "ranks"),
        ("adam.w8", "adamw_8bit"),
    ],
)
def test_a_word_that_begins_as_what_was_typed_is_meant_or_else_the_closest(word: str, expected: str) -> None:
    assert suggestion(word, NAMES) == f"; did you mean {expected!r}?"


def test_every_word_that_begins_so_is_named_if_they_are_few() -> None:
    assert suggestion("bf16", ["bf16_full", "bf16_mixed", "sgd"]) == "; did you mean 'bf16_full' or 'bf16_mixed'?"
    assert suggestion("a", ["ab", "ac", "ad", "ae"]).count("'") == 2


@pytest.mark.parametrize("word", ["", "training.learning_rate", "training.", "bogus"])
def test_nothing_is_meant_where_nothing_is_close(word: str) -> None:
    assert suggestion(word, NAMES) == ""


def test_a_legible_text_steers_no_terminal_and_is_cut() -> None:
    assert legible("plain ü, −12 %") == "plain ü, −12 %"
    assert legible("a\tb\n\x1b[2J\x9b31m\u202e") == "a\tb\n�[2J�31m�"
    assert legible("x" * 10, 4) == "xxx…"
    assert legible("x" * 30_000) == "x" * 30_000
