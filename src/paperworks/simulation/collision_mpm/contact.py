"""What happens at grid nodes that several bodies share: nothing (one velocity field), or contact impulses.

Equations are those of the paper's Collision-MPM; for mu = 1 the impulse is that of Bardenhagen's multi-velocity MPM.
"""

import dataclasses

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class SingleField:
    """All bodies share one velocity field, as in plain MLS-MPM: they meet without slip and stick together."""

    separate = False


@dataclasses.dataclass(frozen=True)
class InterfaceForce:
    """Every body has its own velocity field; where two fields approach each other, equal and opposite impulses act.

    With m_r = m_a m_b / (m_a + m_b), normal n from a to b and approach speed w = (v_a - v_b).n > 0, body a receives
    -mu m_r w n and body b the opposite. The kinetic energy of the node falls by m_r w^2 mu (2 - mu) / 2: mu = 1 leaves
    a common normal velocity, mu > 1 throws it back with a restitution of mu - 1, mu = 0 is no contact.

    A collision of deformable bodies is many such impulses, one a step and node. With mu > 1 stress pushes the bodies
    back in addition, and their total energy grows, several times over at mu = 1.5: keep to the paper's [0, 1] there,
    and let elasticity do the bouncing.

    Args:
        mu: Share of the approach speed that an impulse takes away, in [0, 2]; the paper has [0, 1].
        friction: Coulomb coefficient >= 0 of the tangential impulse; not in the paper.
        gate: Largest distance of the two bodies along n at which they touch, in cells: of their centres of mass as
            weighted at the node. ``None`` for contact as soon as both have mass at a node, as in the paper, which is up
            to 1.5 cells early. About 0.5 lets particles half a cell apart touch.
        printed: Take the impulse's numerator with the sign that the notes on the paper print (p_a m_a - p_b m_b in
            place of m_a p_b - m_b p_a), which adds energy; for comparison only.
    """

    mu: float = 1.0
    friction: float = 0.0
    gate: float | None = None
    printed: bool = False

    separate = True

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if not 0 <= self.mu <= 2:
            raise ValueError(f"mu must lie in [0, 2], got {self.mu}")
        if not self.friction >= 0:
            raise ValueError(f"friction must be >= 0, got {self.friction}")
        if self.gate is not None and not self.gate > 0:
            raise ValueError(f"gate must be > 0 cells or None, got {self.gate}")


ContactModel = SingleField | InterfaceForce


def resolve(
    velocity: Tensor, mass: Tensor, mass_gradient: Tensor, contact: InterfaceForce, centre: Tensor | None = None
) -> Tensor:
    """Velocities after contact, pair after pair of bodies in their order, each pair with equal and opposite impulses.

    Args:
        velocity: Velocities (bodies, nodes, d) before contact.
        mass: Masses (bodies, nodes).
        mass_gradient: sum_p m_p grad w_ip, (bodies, nodes, d): it points out of a body.
        contact: The model.
        centre: Mass-weighted mean of x_p - x_i, in cells, (bodies, nodes, d); needed where the model has a gate.

    Returns:
        Velocities (bodies, nodes, d).
    """
    fields = list(velocity.unbind(0))
    size = mass_gradient.norm(dim=-1)
    sound = (mass > 0) & (size > 1e-12 * mass)
    outward = mass_gradient / torch.where(sound, size, 1.0)[..., None]
    for a in range(len(fields) - 1):
        for b in range(a + 1, len(fields)):
            between = outward[a] - outward[b]
            length = between.norm(dim=-1)
            n = between / torch.where(length > 0, length, 1.0)[:, None]
            w = ((fields[a] - fields[b]) * n).sum(-1)
            # Within overlapping bodies the gradients nearly cancel, and the normal means nothing.
            meet = sound[a] & sound[b] & (length >= 1e-3) & (w > 0)
            if contact.gate is not None:
                if centre is None:
                    raise ValueError("centre is needed where the contact model has a gate")
                meet = meet & (((centre[b] - centre[a]) * n).sum(-1) < contact.gate)
            if not bool(meet.any()):
                continue
            ma, mb = torch.where(meet, mass[a], 1.0)[:, None], torch.where(meet, mass[b], 1.0)[:, None]
            reduced = ma * mb / (ma + mb)
            j = -contact.mu * reduced * w[:, None]
            if contact.printed:
                j = contact.mu * ((ma**2 * fields[a] - mb**2 * fields[b]) * n).sum(-1, keepdim=True) / (ma + mb)
            va, vb = fields[a] + j / ma * n, fields[b] - j / mb * n
            if contact.friction > 0:
                slip = va - vb
                slip = slip - (slip * n).sum(-1, keepdim=True) * n
                speed = slip.norm(dim=-1, keepdim=True)
                drag = torch.minimum(contact.friction * j.abs(), reduced * speed)
                q = drag / torch.where(speed > 0, speed, 1.0)
                va, vb = va - q / ma * slip, vb + q / mb * slip
            fields[a] = torch.where(meet[:, None], va, fields[a])
            fields[b] = torch.where(meet[:, None], vb, fields[b])
    return torch.stack(fields)
