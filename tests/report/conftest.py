"""Reports without the drawings of their figures; `support.drawn` draws one."""

from collections.abc import Iterator

import pytest

from support.figures import leave_undrawn


@pytest.fixture(autouse=True, scope="module")
def _figures_are_not_drawn() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        leave_undrawn(patch)
        yield
