"""AdamW with moments in 16 bits against torch's in 32."""

import torch
from torch import Tensor, nn

from assay.optimizations.fp16_full.step import AdamW16

OPTIONS = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}


def trained(dtype: torch.dtype, size: float) -> tuple[Tensor, dict[str, Tensor]]:
    """A weight after 20 updates, by torch in float32, else by ours."""
    generator = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.randn(64, generator=generator).to(dtype))
    optimizer: torch.optim.Optimizer = torch.optim.AdamW([weight], **OPTIONS)  # type: ignore[arg-type]
    if dtype != torch.float32:
        optimizer = AdamW16(optimizer.param_groups)
    for _ in range(20):
        weight.grad = (size * torch.randn(64, generator=generator)).to(dtype)
        optimizer.step()
    return weight.detach().float(), dict(optimizer.state[weight])


def test_it_is_adamw_up_to_rounding_whatever_the_size_of_gradients() -> None:
    for dtype, within in ((torch.float16, 5e-3), (torch.bfloat16, 5e-2)):
        for size in (1.0, 1e-2, 1e-4):
            (mine, state), (reference, _) = trained(dtype, size), trained(torch.float32, size)
            assert {value.dtype for key, value in state.items() if key != "step"} == {dtype}
            assert float((mine - reference).norm() / reference.norm()) < within, (dtype, size)


def test_a_gradient_too_small_to_be_kept_moves_nothing() -> None:
    weight = nn.Parameter(torch.ones(4, dtype=torch.float16))
    optimizer = AdamW16([{"params": [weight], **OPTIONS, "weight_decay": 0.0}])
    for _ in range(3):
        weight.grad = torch.zeros_like(weight)
        optimizer.step()
    assert bool((weight == 1).all())
