import pytest

from assay.errors import meant

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
    assert meant(word, NAMES) == f"; did you mean {expected!r}?"


@pytest.mark.parametrize("word", ["", "training.learning_rate", "training.", "bogus"])
def test_nothing_is_meant_where_nothing_is_close(word: str) -> None:
    assert meant(word, NAMES) == ""
