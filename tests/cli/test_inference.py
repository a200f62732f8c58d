"""`assay inference`: sizes, speeds and limits by a datasheet, and bad input as one sentence."""

import pytest

from cli.conftest import Assay


def test_inference_says_sizes_speeds_and_limits(assay: Assay) -> None:
    words = ("inference", "gpt2-124m", "--device", "l4", "--bits", "8")
    said = assay(*words)
    assert said.code == 0
    assert "36.0 KiB a token, 36.0 MiB a sequence" in said.out
    assert "Products limit a token from" in said.out
    value = assay(*words, "--json").value
    assert value["cache_bytes_per_token"] == 36864
    assert [row["sequences"] for row in value["rows"] if not row["fits"]] == [1024]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--device", "b20"), "did you mean 'b200'"),
        (("--bits", "3"), "weights have 32 or 16 or 8 or 4 bits"),
        (("--device", "a100", "device=cpu"), "device=cpu and --device a100 both say where the step runs"),
        (("--with", "sgd"), "No such option: --with"),
        (("--price", "2"), "No such option: --price"),
    ],
)
def test_bad_input_is_one_sentence(assay: Assay, words: tuple[str, ...], says: str) -> None:
    said = assay("inference", "gpt2-124m", *words)
    assert said.code == 2
    assert says in said.sentence()
