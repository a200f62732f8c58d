from collections import Counter
from collections.abc import Sequence

import pytest
import torch

from assay.config import ModelConfig
from assay.errors import UsageError
from assay.model.generate import generate, pieces
from support.models import random_model

CONFIG = ModelConfig(n_layer=2, n_head=2, n_embd=16, context_length=8, vocab_size=17, dropout=0.2)


def test_the_seed_decides_and_the_mode_is_put_back() -> None:
    model = random_model(CONFIG)
    first = list(generate(model, [1, 2], 20, temperature=1.0, seed=0))
    assert first == list(generate(model, [1, 2], 20, temperature=1.0, seed=0))
    assert first != list(generate(model, [1, 2], 20, temperature=1.0, seed=1))
    assert len(first) == 20
    assert model.training


def test_temperature_zero_and_one_candidate_take_the_likeliest_beyond_the_context() -> None:
    model = random_model(CONFIG).eval()
    ids = [3, 1, 4]
    for _ in range(15):
        with torch.no_grad():
            ids.append(int(model.logits(torch.tensor([ids[-8:]]))[0, -1].argmax()))
    assert list(generate(model, [3, 1, 4], 15, temperature=0.0, cache=False)) == ids[3:]
    assert list(generate(model, [3, 1, 4], 15, temperature=2.0, top_k=1, seed=5, cache=False)) == ids[3:]
    assert list(generate(model, [3, 1, 4], 15, temperature=1e-300, seed=5, cache=False)) == ids[3:]


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, None), (0.5, None), (1.5, 3)])
def test_draws_follow_the_tempered_and_cut_distribution(temperature: float, top_k: int | None) -> None:
    model = random_model(CONFIG).eval()
    with torch.no_grad():
        logits = model.logits(torch.tensor([[2, 7]]))[0, -1].double() / temperature
    if top_k is not None:
        logits[logits.argsort(descending=True)[top_k:]] = float("-inf")
    expected = logits.softmax(dim=-1)
    draws = 600
    seen = Counter(next(generate(model, [2, 7], 1, temperature, top_k, seed)) for seed in range(draws))
    for token, chance in enumerate(expected.tolist()):
        assert abs(seen[token] / draws - chance) < 4 * (chance * (1 - chance) / draws) ** 0.5 + 1e-9


def test_impossible_requests_are_refused_before_anything_is_drawn() -> None:
    model = random_model(CONFIG)
    for call in (
        lambda: generate(model, [], 1),
        lambda: generate(model, [1], 1, temperature=-1.0),
        lambda: generate(model, [1], 1, temperature=float("nan")),
        lambda: generate(model, [1], 1, top_k=0),
    ):
        with pytest.raises(UsageError):
            call()


def test_a_diverged_model_says_so() -> None:
    model = random_model(CONFIG)
    with torch.no_grad():
        model.head.norm.weight.fill_(float("nan"))
    with pytest.raises(UsageError, match="not finite"):
        next(generate(model, [1], 1))


def _utf8(ids: Sequence[int]) -> str:
    return bytes(ids).decode("utf-8", errors="replace")


def test_pieces_hold_a_character_back_until_it_is_whole() -> None:
    text = "aé→🙂b"
    given = list(pieces(_utf8, list(b"prompt "), text.encode()))
    assert given == list(text)
    assert "".join(pieces(_utf8, list(b"x"), text.encode()[:-2])) == "aé→\N{REPLACEMENT CHARACTER}"


def test_pieces_of_a_decoder_that_joins_words_keep_the_spaces() -> None:
    words = ["to", "be", "or", "not"]
    assert "".join(pieces(lambda ids: " ".join(words[i] for i in ids), [0], [1, 2, 3, 0])) == " be or not to"
