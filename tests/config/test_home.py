"""What torch's compiler keeps lies in the home, unless the user wants it elsewhere."""

import pytest

from assay.config import Home


def test_the_compilers_cache_is_in_the_home(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    assert home.environment()["TORCHINDUCTOR_CACHE_DIR"] == str(home.cache / "torchinductor")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/elsewhere")
    assert home.environment()["TORCHINDUCTOR_CACHE_DIR"] == "/elsewhere"
