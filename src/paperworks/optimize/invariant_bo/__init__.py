"""Bayesian optimisation of functions with a known symmetry: max kernels over the orbits of a group.

Paper: "Symmetry-Aware Bayesian Optimization via Max Kernels", Anthony Bardou, Antoine Gonon, Aryan Ahadinia, Patrick
Thiran, ICLR 2026, arXiv 2509.25051. When f(x) = f(g x) for all g of a group, the usual invariant prior averages a
kernel over orbits, and the average fades as the group grows. The max kernel takes the best alignment of two orbits.
It may be indefinite, so its Gram matrix on the observed points is projected on the positive semi-definite cone and
extended to new points by Nystrom's formula.

What is here:
    `PSDMaxKernel`, `MaxKernel`, `OrbitAverageKernel`, `CanonicalKernel`: GPyTorch kernels.
    `InvariantGP`: a BoTorch `SingleTaskGP` with one of them; `fitted` makes one with its hyper-parameters fitted.
    `SignFlips`, `Permutations`, `SignedPermutations`, `BlockPermutations`, `Cyclic`, `PlanarRotations`, `Scaling`,
        `MatrixGroup`: groups, with orbit distances in closed form where there is one.
    `max_kernel_bo`: GP-UCB as in the paper's experiments; `symmetry_gain` asks the data whether a symmetry holds.
    `InvariantAckley`, `InvariantRastrigin`, `InvariantGriewank`, `Radial`, `RatioScaling`, `WLAN`, `PartPack`,
        `CyclicWells`, `PrototypeSelection`: objectives with their groups, as BoTorch test functions.

Example:
    >>> import torch
    >>> from botorch.acquisition import LogExpectedImprovement
    >>> from botorch.optim import optimize_acqf
    >>> from paperworks.optimize.invariant_bo import InvariantGP, SignedPermutations
    >>> X = 2 * torch.rand(12, 3, dtype=torch.double) - 1
    >>> Y = -X.square().sum(-1, keepdim=True)
    >>> model = InvariantGP(X, Y, SignedPermutations(3)).fit_base()
    >>> bounds = torch.tensor([[-1.0] * 3, [1.0] * 3], dtype=torch.double)
    >>> acquisition = LogExpectedImprovement(model, best_f=Y.max())
    >>> optimize_acqf(acquisition, bounds, q=1, num_restarts=2, raw_samples=16)[0].shape
    torch.Size([1, 3])

    The whole loop, on a function of yours:
    >>> from paperworks.optimize.invariant_bo import max_kernel_bo
    >>> run = max_kernel_bo(lambda x: -x.square().sum(-1), bounds, SignedPermutations(3), n_iter=3)
    >>> run.X.shape
    torch.Size([8, 3])

Differences from the paper:
    Eigenvalues are found by a symmetric solver in float64, and those below 1e-8 of the largest are dropped; the code of
    the authors uses a general solver in float32 and drops those below 1e-4 (`abs_tol=1e-4`).
    beta_t = d log(t) / 2 as in the text (the code has d log(2 t) / 2), t being the number of observations.
    Coordinates are divided by the largest bound before they reach the process, which leaves the action as it is.
    `Scaling` takes its distance along the slice (log x_1 - log x_2) / sqrt(2): how the paper computes it is not known
    to us, and a supremum over all multiples would be the same for every pair of points. Nor is there a uniform average
    over multiples: ours takes both points along their rays within the unit square.
    ``fit_gpytorch_mll`` fits hyper-parameters through the projection; the authors never do.
    The users of `WLAN` are placed by us; `PartPack` drops discs in the plane instead of settling spheres with LAMMPS.
    `canonical`, `unit`, `fitc`, `augment`, hyper-parameters learned through the kernel, `CyclicWells` and
    `PrototypeSelection` are additions; the paper names data augmentation too.
    In our pilots the average kernel finds an optimum that the group leaves alone, such as 0 for Rastrigin, at once, for
    its variance is largest there. Elsewhere it searches worse than at random; `unit` makes its variance even.
    In our pilots most of the gain over `canonical`, which has the same prior where the max kernel is positive
    semi-definite, comes from Nystrom's formula: away from the data the process believes itself certain, and searches
    less widely. `fitc=True` gives the variance back.
"""

from paperworks._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
