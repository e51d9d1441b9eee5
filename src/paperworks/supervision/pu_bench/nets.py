"""Networks trained side by side: one model a lane, all lanes in one batched product where they are plain MLPs."""

import copy
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn


def margin(logits: Float[Tensor, " n *columns"]) -> Float[Tensor, " n"]:
    """The score f of a module's output: the difference of two logits, or a single logit.

    Args:
        logits: Shape (n, 2), (n, 1) or (n,).

    Returns:
        Shape (n,).
    """
    if logits.ndim == 1:
        return logits
    if logits.ndim != 2 or logits.shape[1] not in (1, 2):
        raise ValueError(f"module must return logits of shape (n, 2), (n, 1) or (n,), got {tuple(logits.shape)}")
    return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]


class LaneMLP(nn.Module):
    """As many MLPs with one hidden ReLU layer and two logits as there are generators.

    A lane computes the same numbers alone and among others: its weights come from its own generator, and the batched
    product treats each lane by itself.
    """

    def __init__(self, features: int, hidden: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        shapes = ((features, hidden, features), (1, hidden, features), (hidden, 2, hidden), (1, 2, hidden))

        def draw(rows: int, columns: int, fan_in: int) -> nn.Parameter:
            bound = fan_in**-0.5  # as nn.Linear
            draws = [torch.rand(rows, columns, generator=g) * 2 * bound - bound for g in generators]
            return nn.Parameter(torch.stack(draws))

        self.w1, self.b1, self.w2, self.b2 = (draw(*shape) for shape in shapes)

    def forward(self, x: Float[Tensor, "lanes n features"]) -> Float[Tensor, "lanes n"]:
        """Return f of every row, shape (lanes, n)."""
        hidden = torch.relu(torch.baddbmm(self.b1, x, self.w1))
        logits = torch.baddbmm(self.b2, hidden, self.w2)
        return logits[..., 1] - logits[..., 0]

    def rates(self, rates: Float[Tensor, " lanes"]) -> list[tuple[nn.Parameter, Tensor]]:
        """Each parameter with the learning rates that fit its shape."""
        return [(p, rates[:, None, None]) for p in self.parameters()]

    def clipped(self, gradients: Sequence[Tensor], largest: float) -> list[Tensor]:
        """Gradients of the parameters, scaled down in each lane whose norm exceeds `largest`."""
        norm = torch.stack([g.square().sum(dim=(1, 2)) for g in gradients]).sum(dim=0).sqrt()
        return [g * (largest / norm.clamp(min=largest))[:, None, None] for g in gradients]

    def module(self, lane: int) -> nn.Module:
        """A copy of one lane as a plain torch module that returns two logits."""
        w1, b1, w2, b2 = (p.data[lane] for p in self.parameters())
        module = nn.Sequential(nn.Linear(*w1.shape), nn.ReLU(), nn.Linear(*w2.shape)).to(w1.device)
        for own, given in zip(module.parameters(), (w1.T, b1[0], w2.T, b2[0]), strict=True):
            own.data = given.clone(memory_format=torch.contiguous_format)
        return module


class LaneModules(nn.Module):
    """Modules of any kind, called one after the other.

    Args:
        make: Returns a new module that maps (n, features) to logits of shape (n, 2), (n, 1) or (n,).
        seeds: A seed for each lane's initialisation.
    """

    def __init__(self, make: Callable[[], nn.Module], seeds: Sequence[int]) -> None:
        super().__init__()
        self.own = nn.ModuleList()
        for seed in seeds:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self.own.append(make())

    def forward(self, x: Float[Tensor, "lanes n features"]) -> Float[Tensor, "lanes n"]:
        """Return f of every row, shape (lanes, n)."""
        return torch.stack([margin(module(part)) for module, part in zip(self.own, x, strict=True)])

    def rates(self, rates: Float[Tensor, " lanes"]) -> list[tuple[nn.Parameter, Tensor]]:
        """Each parameter with its lane's learning rate."""
        pairs = zip(self.own, rates, strict=True)
        return [(p, rate) for module, rate in pairs for p in module.parameters() if p.requires_grad]

    def clipped(self, gradients: Sequence[Tensor], largest: float) -> list[Tensor]:
        """Gradients of the parameters, scaled down in each module whose norm exceeds `largest`."""
        result: list[Tensor] = []
        size = len(gradients) // len(self.own)
        for start in range(0, len(gradients), size):
            own = gradients[start : start + size]
            norm = torch.stack([g.square().sum() for g in own]).sum().sqrt()
            result += [g * (largest / norm.clamp(min=largest)) for g in own]
        return result

    def module(self, lane: int) -> nn.Module:
        """A copy of one lane's module."""
        return copy.deepcopy(self.own[lane])


class LaneSGD:
    """SGD with momentum and a learning rate for each lane.

    Args:
        pairs: Parameters with learning rates that broadcast against them.
        momentum: Momentum.
        weight_decay: L2 penalty.
    """

    def __init__(
        self, pairs: Sequence[tuple[nn.Parameter, Tensor]], momentum: float = 0.9, weight_decay: float = 0.0
    ) -> None:
        self.parameters = [p for p, _ in pairs]
        self._rates = [rate for _, rate in pairs]
        self._momentum, self._decay = momentum, weight_decay
        self._velocity = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Move along the gradients of the parameters."""
        if self._decay:
            gradients = torch._foreach_add(list(gradients), self.parameters, alpha=self._decay)
        torch._foreach_mul_(self._velocity, self._momentum)
        torch._foreach_add_(self._velocity, gradients)
        for p, v, rate in zip(self.parameters, self._velocity, self._rates, strict=True):
            p.addcmul_(v, rate, value=-1)
