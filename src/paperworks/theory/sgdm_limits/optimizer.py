"""`UnitGradSGD`: SGD with momentum on gradients of a fixed length, a `torch.optim.Optimizer`.

    (1)  h   = eta g,  eta = sqrt(n) / |g|       g: all gradients of a step as one vector of n entries
    (2)  buf = beta buf + h
    (3)  x   = x - lr buf

The length is taken from the fresh gradient and never from the buffer: normalisation comes before momentum, and a buffer
longer than sqrt(n) stays so. As in `torch.optim.SGD`, lr stands outside the buffer; the paper's p is -lr buf, the same
for a constant lr. With a step delta = c/n in the paper's units, lr is delta.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

Scale = str | Callable[[Tensor, int], Any]
SCALES = ("sqrt_n", "unit")
LARGEST_ALPHA = torch.finfo(torch.float16).max


class UnitGradSGD(Optimizer):
    """SGD that gives every gradient the same length: sqrt(n) as in the paper's SGD-U, 1, or one of your own.

    One length is taken over all parameters that have a gradient, in all groups; n is the number of their entries. The
    update does not change when the loss is multiplied by a positive number, so loss scaling needs no undoing. Of the
    options of `torch.optim.SGD` there is no dampening, Nesterov momentum, weight decay or `maximize`.

    Args:
        params: parameters, or dictionaries of groups; groups may differ in every option.
        lr: learning rate, at least 0. With `scale="sqrt_n"` it is the size of a step for one coordinate, with "unit"
            the length of the whole step (before momentum).
        momentum: beta in [0, 1).
        scale: length given to the gradient: "sqrt_n" for sqrt(n), "unit" for 1; or a callable that takes |g| (a tensor
            of shape ()) and n (an int) and returns the factor eta itself, such as clipping to length 1,
            `lambda norm, n: (1 / norm).clamp(max=1)`. A callable is stored in the state dict as it is.
        eps: smallest |g| that is divided by; below it steps shrink to 0 with the gradient, and a zero gradient gives a
            zero step.
        foreach: use torch's fused list operations; False loops over parameters. Same results up to rounding.
        per_tensor: give each parameter's gradient its own length, with n its own number of entries. Such parameters do
            not count in the common length.
        error_if_nonfinite: raise when the length is NaN or infinite, before anything is changed. One such entry would
            spoil every parameter, not its own alone. False lets it through, as torch's optimisers do, and saves a
            synchronisation on accelerators.

    Raises:
        ValueError: an argument out of range.
        RuntimeError: from `step`, on sparse gradients, and on non-finite ones.

    Example:
        >>> model = torch.nn.Linear(4, 1)
        >>> optimizer = UnitGradSGD(model.parameters(), lr=0.01, momentum=0.9)
        >>> model(torch.ones(2, 4)).square().mean().backward()
        >>> optimizer.step()
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Float[Tensor, ""],
        momentum: float = 0.0,
        scale: Scale = "sqrt_n",
        eps: float = 1e-12,
        foreach: bool = True,
        *,
        per_tensor: bool = False,
        error_if_nonfinite: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "scale": scale,
            "eps": eps,
            "foreach": foreach,
            "per_tensor": per_tensor,
            "error_if_nonfinite": error_if_nonfinite,
        }
        _check(defaults)
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, as in torch.

        Args:
            param_group: "params" and any of the options.
        """
        _check({**self.defaults, **param_group})
        super().add_param_group(param_group)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.defaults.items():
                group.setdefault(name, value)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step.

        Args:
            closure: computes the loss anew, with gradients, and returns it.

        Returns:
            What the closure returned, else None.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        work = []
        for group in self.param_groups:
            params: list[Tensor] = []
            grads: list[Any] = []
            for p in group["params"]:
                grad = p.grad
                if grad is not None:
                    params.append(p)
                    grads.append(grad)
            if any(g.layout is not torch.strided for g in grads):
                raise RuntimeError("UnitGradSGD does not support sparse gradients; allowed are dense ones")
            if params:
                work.append((group, params, grads, _norms(grads, group["foreach"])))
        plan = []  # nothing is changed before every length was looked at
        joint = [(group, grads, norms) for group, _, grads, norms in work if not group["per_tensor"]]
        if joint:
            norm = _joined([norm for _, _, norms in joint for norm in norms])
            count = sum(g.numel() for _, grads, _ in joint for g in grads)
        for group, params, grads, norms in work:
            alone = group["per_tensor"]
            if group["error_if_nonfinite"]:
                _finite(_joined(norms) if alone else norm)
            if alone:
                factor: Any = [_factor(group, own, g.numel()) for own, g in zip(norms, grads, strict=True)]
            else:
                factor = _factor(group, norm, count)
            plan.append((group, params, grads, factor))
        for group, params, grads, factor in plan:
            self._update(group, params, grads, factor)
        return loss

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], factor: Any) -> None:
        lr, momentum, foreach = group["lr"], group["momentum"], group["foreach"]
        if momentum == 0:
            _add_scaled(params, grads, factor, -lr, foreach)
            return
        buffers = []
        for p in params:
            state = self.state[p]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(p, memory_format=torch.preserve_format)
            buffers.append(state["momentum_buffer"])
        if foreach:
            torch._foreach_mul_(buffers, momentum)
        else:
            for buffer in buffers:
                buffer.mul_(momentum)
        _add_scaled(buffers, grads, factor, 1.0, foreach)  # (2)
        _add_scaled(params, buffers, 1.0, -lr, foreach)  # (3)


def _norms(grads: list[Any], foreach: bool) -> list[Tensor]:
    """The length of each gradient, taken in float32 for 16-bit ones, whose squares would overflow."""
    kinds = {g.dtype for g in grads}
    if not foreach or len(kinds) > 1:
        return [torch.linalg.vector_norm(g, dtype=_wide(g.dtype)) for g in grads]
    return list(torch._foreach_norm(grads, 2, dtype=_wide(kinds.pop())))


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _joined(norms: list[Tensor]) -> Tensor:
    """The length of all gradients together, from the length of each."""
    first = norms[0].device
    if any(n.device != first for n in norms):
        norms = [n.to(first, torch.float64 if first.type != "mps" else torch.float32) for n in norms]
    return torch.linalg.vector_norm(torch.stack(norms))


def _factor(group: dict[str, Any], norm: Tensor, count: int) -> Any:
    """eta, from the length of the gradient: (1). A number where reading it needs no synchronisation."""
    scale = group["scale"]
    if callable(scale):
        factor = scale(norm, count)
    else:
        factor = (count**0.5 if scale == "sqrt_n" else 1.0) / norm.clamp_min(group["eps"])
    return float(factor) if not isinstance(factor, Tensor) or factor.device.type == "cpu" else factor


def _add_scaled(into: list[Tensor], what: list[Tensor], factor: Any, times: Any, foreach: bool) -> None:
    """Add times * factor * what to each of `into`; `factor` is one for all, or a list of one each."""
    if isinstance(times, Tensor) and times.device.type == "cpu":
        times = float(times)
    each = factor if isinstance(factor, list) else [factor] * len(into)
    if foreach and not isinstance(factor, list) and _is_alpha(factor * times):
        torch._foreach_add_(into, what, alpha=factor * times)
        return
    for x, y, f in zip(into, what, each, strict=True):
        both = f * times
        if _is_alpha(both):
            x.add_(y, alpha=both)  # one pass over memory
        else:
            wide = _wide(x.dtype)
            x.add_((y.to(wide) * (both.to(x.device, wide) if isinstance(both, Tensor) else both)).to(x.dtype))


def _is_alpha(factor: Any) -> bool:
    """Whether torch takes a factor as `alpha`: a number within the range of float16, whatever the dtype, or not."""
    return not isinstance(factor, Tensor) and abs(factor) <= LARGEST_ALPHA


def _finite(norm: Tensor) -> None:
    if not math.isfinite(norm.item()):
        raise RuntimeError(
            f"the gradient has length {norm.item()}; allowed are finite ones (error_if_nonfinite=False lets it pass)"
        )


def _check(options: dict[str, Any]) -> None:
    lr, momentum, scale, eps = (options[name] for name in ("lr", "momentum", "scale", "eps"))
    if not lr >= 0:
        raise ValueError(f"lr={lr}; allowed are numbers of at least 0")
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum={momentum}; allowed is 0 <= momentum < 1")
    if not callable(scale) and scale not in SCALES:
        raise ValueError(f"scale={scale!r}; allowed are 'sqrt_n', 'unit' and a callable of (norm, n)")
    if not eps > 0:
        raise ValueError(f"eps={eps}; allowed are numbers above 0")
