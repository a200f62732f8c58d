"""The law of size and steps L(N, S_min) = (N_c/N)^α_N + (S_c/S_min)^α_S, with the constants of its paper."""


def kaplan_loss(parameters: float, least_steps: float) -> float:
    """Return the loss of N parameters without embeddings after S_min steps (Kaplan et al. 2020, table 3)."""
    return float((6.5e13 / parameters) ** 0.077 + (2.1e3 / least_steps) ** 0.76)
