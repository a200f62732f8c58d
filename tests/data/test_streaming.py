"""Streamed documents: every token once, in order; any step again; a place that goes on without reading what was."""

import json
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

from assay.data.streaming import DocumentBatches, Place
from assay.data.tokenizers import ByteTokenizer
from assay.errors import UsageError

TEXTS = [f"document {n}: " + "x" * (n * 7 % 23) + ("\n" if n % 3 else "") for n in range(17)] + ["", "\n"]
"""The last two hold nothing."""
STREAM = np.concatenate([ByteTokenizer().encode(t.removesuffix("\n") + "\n") for t in TEXTS[:-2]]).astype(np.int64)
ROWS, LENGTH = 3, 8


class Counted:
    """Documents, and how many were given and encoded."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.encoded = 0

    def read(self, start: int) -> Iterator[str]:
        return iter(self.texts[start:])

    def encode(self, text: str) -> Iterator[np.ndarray]:
        self.encoded += 1
        ids = ByteTokenizer().encode(text)
        yield from (ids[i : i + 5] for i in range(0, len(ids), 5))

    def batches(self) -> DocumentBatches:
        return DocumentBatches(self.read, self.encode, ROWS, LENGTH)


def wanted(step: int) -> tuple[np.ndarray, np.ndarray]:
    endless = np.tile(STREAM, 9)
    block = endless[step * ROWS * LENGTH : (step + 1) * ROWS * LENGTH + 1]
    return block[:-1].reshape(ROWS, LENGTH), block[1:].reshape(ROWS, LENGTH)


def same(batches: DocumentBatches, step: int, share: tuple[int, int] = (0, 1)) -> bool:
    return all(
        np.array_equal(mine, theirs[share[0] :: share[1]])
        for mine, theirs in zip(batches.at(step, share), wanted(step), strict=True)
    )


def test_steps_in_order_are_the_documents_one_after_the_other_and_begin_again() -> None:
    batches = Counted(TEXTS).batches()
    assert len(STREAM) < 40 * ROWS * LENGTH
    assert all(same(batches, step) for step in range(40))


def test_any_step_can_be_asked_for_and_a_share_is_its_rows() -> None:
    batches = Counted(TEXTS).batches()
    assert all(same(batches, step) for step in (5, 5, 4, 20, 21, 2, 0, 30))
    assert all(same(batches, 30, (rank, 3)) for rank in range(3))


@pytest.mark.parametrize("done", [1, 6, 13, 25])
def test_a_place_goes_on_and_tokenizes_nothing_again(done: int) -> None:
    first, again = Counted(TEXTS), Counted(TEXTS)
    before, after = first.batches(), again.batches()
    for step in range(done):
        before.at(step)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert same(after, done)
    place = before._places[done]
    assert place != Place()
    assert again.encoded <= 2 + ROWS * LENGTH // 10 < done + 4
    assert all(same(after, step) for step in range(done + 1, done + 5))


def begun(step: int) -> int:
    """Documents of which the steps before this one read a token, by the length of each."""
    read, count = step * ROWS * LENGTH, 0
    for text in [*TEXTS[:-2]] * 9:
        if read <= 0:
            break
        read, count = read - len(ByteTokenizer().encode(text.removesuffix("\n") + "\n")), count + 1
    return count


def test_documents_count_once_a_token_was_read_and_again_in_each_pass() -> None:
    batches = Counted(TEXTS).batches()
    for step in range(40):
        batches.at(step)
        assert batches.begun(step + 1) == begun(step + 1)
    assert begun(40) > 2 * len(TEXTS)
    assert batches.begun(3) is None


@pytest.mark.parametrize("done", [1, 6, 13, 25])
def test_the_count_goes_on_from_a_checkpoint_unless_that_has_none(done: int) -> None:
    before, after, unknown = (Counted(TEXTS).batches() for _ in range(3))
    for step in range(done):
        before.at(step)
    state = before.state_dict()
    after.load_state_dict(state)
    unknown.load_state_dict({"places": [place[:3] for place in state["places"]]})
    assert after.begun(done) == begun(done)
    for step in range(done, done + 9):
        assert same(after, step)
        assert same(unknown, step)
        assert after.begun(step + 1) == begun(step + 1)
        assert unknown.begun(step + 1) is None


def test_a_step_that_could_not_be_read_can_be_asked_for_again() -> None:
    source, left = Counted(TEXTS), [OSError("gone"), OSError("gone")]

    def read(start: int) -> Iterator[str]:
        for document, text in enumerate(source.read(start), start):
            if document == 9 and left:
                raise left.pop()
            yield text

    batches, step = DocumentBatches(read, source.encode, ROWS, LENGTH), 0
    while len(left) == 2:
        with suppress(OSError):
            assert same(batches, step)
            step += 1
    with pytest.raises(OSError, match="gone"):
        batches.at(step)
    assert all(same(batches, one) for one in range(step, 40))


@pytest.mark.parametrize("texts", [[], [""], ["", "\n", "  "]])
def test_documents_without_text_are_refused(texts: list[str]) -> None:
    with pytest.raises(UsageError, match="contain no text"):
        Counted(texts).batches().at(0)
