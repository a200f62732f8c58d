import torch
from torch import nn

from assay.config import TrainingConfig
from assay.optimizers.lion import lion


def test_lion_follows_its_definition() -> None:
    training = TrainingConfig(learning_rate=0.01, min_learning_rate=0.001, weight_decay=0.5)
    weight = nn.Parameter(torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64))
    optimizer = lion(training, (0.8, 0.6))([("weight", weight)])
    expected, m = weight.detach().clone(), torch.zeros(1, 3).double()
    for t in range(1, 6):
        gradient = torch.tensor([[0.3 * (-1) ** t, -0.1 * t, 0.2 - 0.1 * t]], dtype=torch.float64)
        weight.grad = gradient.clone()
        optimizer.step()
        expected = expected - 0.01 * (torch.sign(0.8 * m + 0.2 * gradient) + 0.5 * expected)
        m = 0.6 * m + 0.4 * gradient
    torch.testing.assert_close(weight.detach(), expected, rtol=1e-12, atol=0)


def test_a_parameter_without_a_gradient_stays() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer = lion(TrainingConfig(), (0.9, 0.99))([("weight", weight)])
    optimizer.step()
    assert torch.equal(weight.detach(), torch.ones(2, 2))
    assert not optimizer.state
