import torch

from assay.config import TrainingConfig
from assay.optimizations.adamw_bf16_state.step import narrow_adamw
from assay.optimizers.recipes import adamw
from support.optimizers import after, made, update

TRAINING = TrainingConfig(learning_rate=1e-3)


def test_the_first_update_is_adamws_and_later_ones_are_near() -> None:
    for updates, within in ((1, 1e-6), (5, 1e-3 * 5 * 0.02)):
        wide, narrow = after(adamw(TRAINING), updates), after(narrow_adamw(TRAINING), updates)
        for name, weight in wide.items():
            torch.testing.assert_close(narrow[name], weight, rtol=0, atol=within)


def test_moments_are_adamws_rounded() -> None:
    (wide, ours), (narrow, mine) = made(adamw(TRAINING)), made(narrow_adamw(TRAINING))
    update(wide, ours, 0)
    update(narrow, mine, 0)
    for (_, one), (_, other) in zip(ours, mine, strict=True):
        for key in ("exp_avg", "exp_avg_sq"):
            assert narrow.state[other][key].dtype == torch.bfloat16
            assert torch.equal(narrow.state[other][key], wide.state[one][key].to(torch.bfloat16))


def test_loaded_moments_stay_narrow() -> None:
    (first, ours), (second, mine) = made(narrow_adamw(TRAINING)), made(narrow_adamw(TRAINING), seed=1)
    update(first, ours, 0)
    second.load_state_dict(first.state_dict())
    for (_, one), (_, other) in zip(ours, mine, strict=True):
        for key, kept in first.state[one].items():
            assert second.state[other][key].dtype == kept.dtype
            assert torch.equal(second.state[other][key], kept)
