"""Here figures are drawn."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _figures_are_not_drawn() -> None:
    """Nothing stands in the place of a drawing."""
