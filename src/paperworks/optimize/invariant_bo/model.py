"""An invariant Gaussian process as a BoTorch model, and the fit that the authors use."""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Standardize
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from .groups import Group
from .kernels import CanonicalKernel, MaxKernel, OrbitAverageKernel, PSDMaxKernel

Base = Literal["matern52", "matern32", "matern12", "rbf"]
Choice = Literal["psd_max", "max", "average", "canonical", "base"]
OPTIONS = {"psd_max": ("tol", "abs_tol", "fitc", "learn"), "average": ("angles", "unit")}
BASES: dict[str, Callable[[], Kernel]] = {
    "matern52": lambda: MaternKernel(nu=2.5),
    "matern32": lambda: MaternKernel(nu=1.5),
    "matern12": lambda: MaternKernel(nu=0.5),
    "rbf": RBFKernel,
}


KERNELS: dict[str, Callable[..., Kernel]] = {
    "psd_max": PSDMaxKernel,
    "max": MaxKernel,
    "average": OrbitAverageKernel,
    "canonical": CanonicalKernel,
}


class InvariantGP(SingleTaskGP):
    """A single-task Gaussian process whose prior knows that f(x) = f(g x): BoTorch uses it like any other.

    Mean zero on standardised targets, as in the paper. The hyper-parameters are those of GPyTorch until `fit_base` or
    ``fit_gpytorch_mll`` has fitted them.

    Args:
        train_X: Points (n, d), in the coordinates in which the group acts: no input transform that moves them, only one
            that scales all coordinates alike.
        train_Y: Values (n, 1).
        group: The group; unused by kernel "base".
        train_Yvar: Known noise variances (n, 1).
        base: "matern52", "matern32", "matern12", "rbf" or an isotropic GPyTorch kernel.
        kernel: "psd_max" (the paper's), "average", "canonical" (representatives), "max" (indefinite in general) or
            "base" (no symmetry).
        **options: For the kernel, such as ``fitc=True``.

    `condition_on_observations` and `fantasize` leave the design of "psd_max" as it is: the kernel of a process may not
    change under it. A new `InvariantGP` has all points as its design.

    Raises:
        TypeError: When data are no tensors or the group is none.
        ValueError: For another base, kernel or option, data that are not finite or of other shapes.
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        group: Group,
        train_Yvar: Tensor | None = None,
        *,
        base: Base | Kernel = "matern52",
        kernel: Choice = "psd_max",
        **options: Any,
    ) -> None:
        if isinstance(base, str) and base not in BASES:
            raise ValueError(f"base = {base!r}: one of {', '.join(BASES)} or a kernel is needed")
        if kernel not in (*KERNELS, "base"):
            raise ValueError(f"kernel = {kernel!r}: one of {', '.join(KERNELS)}, base is needed")
        if not isinstance(group, Group):
            raise TypeError(f"group = {group!r}: a Group is needed, such as SignedPermutations(3)")
        for name, value in (("train_X", train_X), ("train_Y", train_Y)):
            if not isinstance(value, Tensor):
                raise TypeError(f"{name} is a {type(value).__name__}: a tensor is needed")
            if not bool(torch.isfinite(value).all()):
                raise ValueError(f"{name} has values that are not finite")
        group.check(train_X, "train_X")
        if train_X.dim() != 2 or len(train_X) == 0 or train_Y.shape != (len(train_X), 1):
            shapes = f"train_X {tuple(train_X.shape)}, train_Y {tuple(train_Y.shape)}"
            raise ValueError(f"{shapes}: (n, d) and (n, 1) are needed, n >= 1")
        for option in options:
            if option not in OPTIONS.get(kernel, ()):
                known = ", ".join(OPTIONS.get(kernel, ())) or "none"
                raise ValueError(f"option {option!r} is unknown to kernel {kernel!r}, which has: {known}")
        one = BASES[base]() if isinstance(base, str) else base
        inner = one if kernel == "base" else KERNELS[kernel](one, group, **options)
        noise = {} if train_Yvar is None else {"train_Yvar": train_Yvar}
        likelihood = None if noise else GaussianLikelihood(noise_constraint=GreaterThan(1e-4))
        super().__init__(
            train_X,
            train_Y,
            likelihood=likelihood,
            covar_module=ScaleKernel(inner),
            mean_module=ZeroMean(),
            outcome_transform=Standardize(m=1) if len(train_Y) > 1 else None,
            **noise,
        )
        self.group = group
        if isinstance(inner, PSDMaxKernel):
            inner.set_design(train_X)

    @property
    def base_kernel(self) -> Kernel:
        """The base kernel, with the lengthscale."""
        inner = self.covar_module.base_kernel
        return inner if not hasattr(inner, "group") else inner.base_kernel

    def fit_base(self, steps: int = 50, lr: float = 0.1) -> "InvariantGP":
        """Take scale, lengthscale and noise from an ordinary process without symmetry; returns self.

        That process has the base kernel and a constant mean and is fitted to the same data by Adam on the exact
        marginal likelihood. So do the authors; every kernel then has the same hyper-parameters. ``fit_gpytorch_mll``
        fits them through the kernel itself.

        Args:
            steps: Steps of Adam.
            lr: Its learning rate.
        """
        x, y = self.train_inputs[0], self.train_targets
        base = self.base_kernel
        outer = self.covar_module
        mean = torch.zeros((), dtype=x.dtype, device=x.device, requires_grad=True)
        parameters = [*base.parameters(), outer.raw_outputscale, mean]
        likelihood = self.likelihood
        parameters += [p for p in likelihood.parameters() if p.requires_grad]
        optimiser = torch.optim.Adam(parameters, lr=lr)
        n = x.shape[-2]
        eye = torch.eye(n, dtype=x.dtype, device=x.device)
        with torch.enable_grad():
            for _ in range(steps):
                optimiser.zero_grad()
                gram = outer.outputscale * base(x, x).to_dense()
                noise = likelihood.noise
                gram = gram + (torch.diag_embed(noise) if noise.numel() == n and n > 1 else noise * eye)
                root = torch.linalg.cholesky(gram + 1e-8 * eye)
                white = torch.linalg.solve_triangular(root, (y - mean).unsqueeze(-1), upper=False)
                loss = 0.5 * white.square().sum() + root.diagonal().log().sum() + 0.5 * n * math.log(2 * math.pi)
                (loss / n).backward()
                optimiser.step()
        return self.eval()  # type: ignore[no-any-return]


def fitted(
    train_X: Tensor,
    train_Y: Tensor,
    group: Group,
    *,
    base: Base = "matern52",
    kernel: Choice = "psd_max",
    fit: Literal["base", "kernel"] = "base",
    augment: int = 1,
    **options: Any,
) -> InvariantGP:
    """An `InvariantGP` with its hyper-parameters fitted.

    Args:
        train_X: Points (n, d).
        train_Y: Values (n, 1).
        group: The group.
        base: The base kernel.
        kernel: As in `InvariantGP`.
        fit: "base" as the authors do (`InvariantGP.fit_base`), or "kernel": through the kernel itself, with BoTorch.
        augment: Number of images of every point that are put among the data, the point itself included (data
            augmentation: for kernel "base"); the hyper-parameters are fitted without them.
        **options: For the kernel.
    """
    if fit not in ("base", "kernel"):
        raise ValueError(f"fit = {fit!r}: base or kernel is needed")
    if not isinstance(augment, int) or augment < 1:
        raise ValueError(f"augment = {augment!r}: a whole number of at least 1 is needed")
    model = InvariantGP(train_X, train_Y, group, base=base, kernel=kernel, **options)
    if fit == "base":
        model.fit_base()
    else:
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    if augment > 1:
        act = group.sample(augment, torch.Generator().manual_seed(0))
        images = act(train_X)  # (images, n, d)
        more = InvariantGP(
            images.flatten(0, 1), train_Y.repeat(len(images), 1), group, base=base, kernel=kernel, **options
        )
        state = {k: v for k, v in model.state_dict().items() if not k.startswith("outcome_transform")}
        more.load_state_dict(state, strict=False)
        # Values stay standardised as they were when the hyper-parameters were fitted.
        more.outcome_transform = model.outcome_transform
        more.set_train_data(targets=model.train_targets.repeat(len(images)), strict=False)
        model = more
    return model.eval()  # type: ignore[no-any-return]
