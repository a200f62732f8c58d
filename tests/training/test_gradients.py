import pytest
import torch
from torch import Tensor

from assay.data import Prepared
from assay.errors import UsageError
from assay.step.program import LossScale, Parallel, Precision, Step
from assay.training.gradients import cut
from assay.training.loop import train_step
from support.runs import tiny
from support.steps import step_of, weights


def gradient_of(step: Step, index: int = 0) -> tuple[Tensor, Tensor]:
    """(all gradients in one vector, loss) of a step that is not updated."""
    program = step.program
    rows = cut(program.batches(index, program.parallel.share), program.micro_batches)
    tokens = sum(targets.numel() for _, targets in rows)
    loss = program.gradients(step, rows, tokens) / tokens
    gradients = [parameter.grad for _, parameter in step.named_parameters()]
    return torch.cat([gradient.flatten() for gradient in gradients if gradient is not None]), loss


@pytest.mark.parametrize("parts", [2, 4])
def test_cutting_the_batch_changes_gradients_by_rounding_only(corpus: Prepared, parts: int) -> None:
    whole, loss = gradient_of(step_of(tiny(), corpus))
    cut_up, cut_loss = gradient_of(step_of(tiny(), corpus, micro_batches=parts))
    assert torch.linalg.vector_norm(whole - cut_up) / torch.linalg.vector_norm(whole) <= 5e-6
    assert cut_loss.item() == pytest.approx(loss.item(), rel=1e-6)


def test_gradients_are_those_of_the_mean_loss(corpus: Prepared) -> None:
    step = step_of(tiny(), corpus)
    found, loss = gradient_of(step)
    plain = step_of(tiny(), corpus)
    ids, targets = plain.program.batches(0, (0, 1))[0]
    logits = plain.parts[0].logits(ids)  # type: ignore[operator]
    mean = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    expected = torch.autograd.grad(mean, [parameter for _, parameter in plain.named_parameters()])
    torch.testing.assert_close(found, torch.cat([one.flatten() for one in expected]), rtol=1e-4, atol=1e-7)
    assert loss.item() == pytest.approx(mean.item(), rel=1e-6)


def test_a_batch_that_does_not_divide_is_refused(corpus: Prepared) -> None:
    with pytest.raises(UsageError, match="4 sequences cannot be cut into 3 equal micro-batches"):
        train_step(step_of(tiny(), corpus, micro_batches=3), 0)


def test_clipping_scales_the_gradients_to_the_norm_and_reports_the_norm_before(corpus: Prepared) -> None:
    seen: list[float] = []

    def stepping(step: Step, clip: float) -> float:
        parameters = [parameter for _, parameter in step.named_parameters()]

        def look() -> None:
            grads = [p.grad for p in parameters if p.grad is not None]
            seen.append(torch.linalg.vector_norm(torch.cat([g.flatten() for g in grads])).item())

        step.optimizer.step = look  # type: ignore[method-assign]
        ids = step.program.batches(0, (0, 1))
        step.program.gradients(step, ids, 64)
        return step.program.update(step).item()

    free = stepping(step_of(tiny({"gradient_clip": 0.0}), corpus), 0.0)
    clipped = stepping(step_of(tiny({"gradient_clip": 0.25}), corpus), 0.25)
    loose = stepping(step_of(tiny({"gradient_clip": 1e6}), corpus), 1e6)
    assert free == clipped == loose
    assert free > 0.25
    assert seen == pytest.approx([free, 0.25, free], rel=1e-4)


def test_a_loss_scale_changes_nothing_once_gradients_are_unscaled(corpus: Prepared) -> None:
    class Double(LossScale):
        def scale(self, loss: Tensor) -> Tensor:
            return loss * 1024

        def unscale(self, step: Step) -> None:
            for _, parameter in step.named_parameters():
                assert parameter.grad is not None
                parameter.grad.div_(1024)

    plain, scaled = step_of(tiny(), corpus), step_of(tiny(), corpus, precision=Precision(loss_scale=Double()))
    for index in range(3):
        assert train_step(plain, index).log_gradient_norm == train_step(scaled, index).log_gradient_norm
    assert all(torch.equal(value, weights(scaled)[name]) for name, value in weights(plain).items())


def test_a_skipped_update_leaves_the_weights_and_goes_on(corpus: Prepared) -> None:
    class Overflow(LossScale):
        def unscale(self, step: Step) -> None:
            for _, parameter in step.named_parameters():
                assert parameter.grad is not None
                parameter.grad.fill_(float("inf"))

        def skip(self, step: Step, norm: Tensor) -> bool:
            return True

    step = step_of(tiny(), corpus, precision=Precision(loss_scale=Overflow()))
    before = weights(step)
    record = train_step(step, 0)
    assert record.skipped
    assert record.finite
    assert all(torch.equal(value, before[name]) for name, value in weights(step).items())


def test_contexts_and_synchronization_surround_what_they_should(corpus: Prepared) -> None:
    from collections.abc import Iterator
    from contextlib import contextmanager

    log: list[str] = []

    @contextmanager
    def around(name: str) -> Iterator[None]:
        log.append(name)
        yield
        log.append(f"/{name}")

    step = step_of(
        tiny(),
        corpus,
        micro_batches=2,
        step_contexts=(lambda: around("step"),),
        parallel=Parallel(lambda loss: loss, synchronize=lambda step, last: around(f"sync {last}")),
        finish_gradients=(lambda step: log.append("finish"),),
    )
    train_step(step, 0)
    expected = ["step", "sync False", "/sync False", "/step", "step", "sync True", "/sync True", "/step", "finish"]
    assert log == expected
