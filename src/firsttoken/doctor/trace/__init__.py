"""How a recorded trace spends its steps: gaps, kernels, and their share of the ceiling."""
