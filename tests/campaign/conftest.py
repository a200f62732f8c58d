"""Runs that several tests damage copies of."""

import pytest

from campaign.sound import Sound, sound_runs


@pytest.fixture(autouse=True)
def _figures_are_not_drawn(undrawn: None) -> None:
    """No fault is put into a figure."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    """A home with a run that was done and one that was killed."""
    return sound_runs(tmp_path_factory.mktemp("sound"))
