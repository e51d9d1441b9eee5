"""Scaling limits of SGD with momentum and with normalised gradients.

Paper: "High-dimensional limit theorems for SGD: Momentum and Adaptive Step-sizes", Aukosh Jagannath, Taj
Jones-McCormick, Varnan Sarangian, ICLR 2026, arXiv 2511.03952. In dimension n, with one fresh sample a step and step
size c/n, SGD does not follow the gradient flow of the population loss: the variance of its gradients pushes as hard.
Momentum multiplies that push by 1/(1 - beta)^2 and the flow by 1/(1 - beta) only; gradients of a fixed length weaken it
where gradients are large. For spiked tensor PCA and single index models two numbers, m = <x, v> and r^2 = |x - m v|^2,
then obey a closed equation.

What is here:
    `UnitGradSGD`: SGD on gradients of length sqrt(n) (SGD-U of the paper), a `torch.optim.Optimizer`.
    `EffectiveDynamics`: the limiting equation for SGD, momentum, unit gradients or any step that depends on the
        gradient's length: drift, corrector, diffusion, ODE and SDE, fixed points, critical signal, largest step.
    `SpikedTensorPCA`, `SingleIndex`: the two problems, with losses for autograd and simulators.
    `simulate_lanes`: many runs at once by a simulator that is exact in law and whose cost does not depend on n.

Example:
    >>> from paperworks.theory.sgdm_limits import EffectiveDynamics, SpikedTensorPCA
    >>> problem = SpikedTensorPCA(k=2, lam=2.0)
    >>> round(EffectiveDynamics(problem, beta=0.9).max_step(), 3)
    0.2
    >>> round(EffectiveDynamics(problem, algorithm="unit").max_step(), 3)
    8.0

Only `UnitGradSGD` needs torch.

Differences from the paper:
    The paper's text was not at hand; the method was written from its abstract and from summaries by others. All limits
    were derived again (docstrings of `dynamics`, `problems`) and are checked against simulations of the algorithms.
    Proposition 3.4 as we know it has a drift without sqrt(k) and a noise that grows with the rescaled m; simulation
    agrees with our derivation, sqrt(2) m~ (lambda - r^2)/r dt + sqrt(c) dB (see the errata).
    Proposition 3.8 is about (1, 0) alone: beyond its threshold a link such as x^3 has another stable fixed point, with
    r^2 > 0, until a larger c. `max_step` counts that one as learnt.
    The reduced simulator, callable step rules, `max_step` and `critical_snr` for every order k, and the fluctuations at
    finite n in `solve_sde` are additions.
    `UnitGradSGD` normalises before momentum and keeps the learning rate outside the buffer, as torch does; the paper's
    buffer contains it. The two are the same while the rate is constant. One length over all parameters, `eps`,
    `per_tensor` and the error for gradients that are not finite are our choices.
    Steps of unit gradients are bounded, so that they cannot explode; on single index models we compare the step sizes
    that end with an alignment above 0.9 instead of those that do not explode.
    Where the paper starts at random, our warm starts are at m = 0.3, r^2 = 1; `pca_random` starts as the paper does.
"""

from paperworks._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
