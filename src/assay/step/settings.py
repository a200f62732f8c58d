"""Settings of torch that hold for the whole process: a technique may change one within a step, and puts it back."""

from collections.abc import Mapping
from typing import Any

import torch


def settings() -> Mapping[str, object]:
    """Return the present value of each setting by its name."""
    cuda: Any = torch.backends.cuda
    return {
        "precision of float32 products": torch.get_float32_matmul_precision(),
        "TF32 in cuDNN": torch.backends.cudnn.allow_tf32,
        "sums of products in bfloat16": cuda.matmul.allow_bf16_reduced_precision_reduction,
        "sums of products in float16": cuda.matmul.allow_fp16_reduced_precision_reduction,
        "default dtype": torch.get_default_dtype(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "gradients": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"),
        "flash attention": cuda.flash_sdp_enabled(),
        "memory-efficient attention": cuda.mem_efficient_sdp_enabled(),
        "cuDNN's attention": cuda.cudnn_sdp_enabled(),
        "unfused attention": cuda.math_sdp_enabled(),
    }
