"""`assay gradients` on a run with a real checkpoint."""

import pytest

from assay.data import Batches
from assay.data.prepared_folder import open_prepared
from cli.conftest import Assay
from support.trained import Trained


def test_it_measures_the_batches_that_the_run_would_train_next(assay: Assay, trained: Trained) -> None:
    folder = trained(3)
    said = assay("gradients", "last", "--micro-batches", "4", "--sequences", "2", "--json")
    assert said.code == 0, said.err
    value = said.value
    assert (value["run"], value["steps"], value["micro_batches"], value["sequences"]) == (folder.id, 3, 4, 2)
    assert [one["module"] for one in value["modules"]] == ["embedding", "block 1", "final norm"]
    assert value["loss"] == pytest.approx(loss(trained, folder.id), rel=1e-5)
    assert 0 < value["gradient_norm"] <= value["micro_batch_norm"]
    assert -1 <= value["mean_cosine"] <= 1


def loss(trained: Trained, run: str) -> float:
    """The slow reference: the mean loss of the four batches after step 3."""
    import torch

    from assay.config import Home
    from assay.store.trained_model import find_trained as found_by

    found = found_by(Home(), run)
    model, data = found.model(), open_prepared(found.data_folder)
    source = Batches(data.train, 0, 2, 8)
    batches = (map(torch.from_numpy, source.at(step)) for step in range(3, 7))
    return sum(float(model(*batch)) / 16 for batch in batches) / 4


def test_it_prints_a_table_and_what_the_noise_scale_means(assay: Assay, trained: Trained) -> None:
    trained(3)
    said = assay("gradients", "last")
    assert said.code == 0, said.err
    assert "final norm\t" in said.out
    assert "The noise" in said.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nothing",), "there is no run"),
        (("last",), "has no checkpoint"),
        (("last", "--micro-batches", "1"), "greater than or equal to 2"),
        (("last", "--sequences", "0"), "greater than or equal to 1"),
        (("last", "--sequences", "2147483648"), "2,147,483,648 sequences need at least "),
    ],
)
def test_impossible_arguments_are_a_sentence(
    assay: Assay, trained: Trained, words: tuple[str, ...], sentence: str
) -> None:
    trained()
    said = assay("gradients", *words)
    assert said.code == 2
    assert sentence in said.sentence()
