"""The blocks by which a measured peak differs are named with their bytes and with what made them."""

from assay.proofs.peak_blocks import differing_blocks, differing_text
from assay.records.memory import PeakBlock

MIB = 2**20
WORKSPACE = "cuBLAS's workspace of autograd's thread"


def block(nbytes: int, count: int, made: str) -> PeakBlock:
    return PeakBlock(nbytes=nbytes, count=count, made=made)


WEIGHTS, MLP, GRADIENT = block(4 * MIB, 3, "weights"), block(MIB, 2, "saved: MLP"), block(MIB, 1, "gradients")
PREDICTED = (WEIGHTS, MLP, GRADIENT, block(4, 9, "counts"))
MEASURED = (block(4 * MIB, 3, "before the step"), block(MIB, 3, "mlp.py:21"), block(4, 9, "gradients.py:3"))


def test_equal_blocks_have_other_makers_and_no_sentence() -> None:
    assert differing_blocks(MEASURED, PREDICTED) == ()
    assert differing_text(MEASURED, PREDICTED) == ""


def test_a_block_that_was_not_predicted_is_named_by_what_made_it() -> None:
    more = (*MEASURED, block(32 * MIB, 1, WORKSPACE))
    assert differing_text(more, PREDICTED) == f"one block of 33,554,432 bytes more ({WORKSPACE})"


def test_missing_blocks_are_named_by_every_part_that_has_their_size() -> None:
    fewer = (*MEASURED[:1], block(MIB, 1, "mlp.py:21"), *MEASURED[2:])
    (one,) = differing_blocks(fewer, PREDICTED)
    assert (one.nbytes, one.count) == (MIB, -2)
    assert differing_text(fewer, PREDICTED) == "2 blocks of 1,048,576 bytes less (saved: MLP or gradients)"


def test_the_most_bytes_come_first_and_further_sizes_are_counted() -> None:
    odd = tuple(block(size, count, "a.py:1") for size, count in ((8, 100), (16, 2), (64, 1), (600, 1), (700, 1)))
    text = differing_text((*MEASURED, *odd), PREDICTED)
    named = "100 blocks of 8 bytes more (a.py:1), one block of 700 bytes more (a.py:1), one block of 600 bytes more"
    assert text == f"{named} (a.py:1) and blocks of 2 other sizes"


def test_a_peak_without_known_blocks_is_not_compared() -> None:
    assert differing_text((), PREDICTED) == differing_text(MEASURED, ()) == ""
