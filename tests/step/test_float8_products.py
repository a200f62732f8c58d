"""Products in float8 on a processor with AMX, whose rate is that of the products of a run."""

import pytest
import torch

from assay.instruments.rates import torch_rates
from assay.step import float8_products


def test_onednn_is_off_during_a_product_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Kernel:
        def call_boxed(self, *_: object, **__: object) -> torch.Tensor:
            seen.append(torch._C._get_mkldnn_enabled())
            raise RuntimeError("shapes do not match")

    monkeypatch.setattr(torch.library, "get_kernel", lambda operator, key: Kernel())
    with pytest.raises(RuntimeError, match="shapes"):
        float8_products._without_onednn(torch.ops.aten._scaled_mm.default)(None)
    assert seen == [False]
    assert torch._C._get_mkldnn_enabled()


def test_the_rate_is_that_of_the_products_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(torch_rates, "widen_products", lambda: called.append(True))
    narrow = torch.ones(16, 16).to(torch.float8_e4m3fn)
    torch_rates._products(narrow, narrow)
    assert called
    torch_rates._products(torch.ones(2, 2), torch.ones(2, 2))
    assert len(called) == 1
