"""Collision-MPM and fracture-aware 3-D Gaussians: bodies that collide without sticking, break, and can be drawn.

Paper: "Fracture-GS: Dynamic Fracture Simulation with Physics-Integrated Gaussian Splatting", ICLR 2026, OpenReview
zcAwK50ft0. The material point method moves all particles through one velocity field, so bodies that touch stick.
Collision-MPM gives every body a field of its own and exchanges impulses where two of them meet. Brittle failure comes
from the NACC model, whose hardening variable tells which particles have broken. A broken particle's round Gaussian
is replaced by the smallest ellipsoids about its overlaps with intact neighbours (FPGO).

What is here:
    `MPMSolver`: MLS-MPM, 2-D and 3-D, float32 and float64, on CPU and GPU (Warp), or in plain torch with gradients.
    `InterfaceForce`, `SingleField`: what happens where bodies meet; `resolve` is the rule by itself.
    `NACC`, `NeoHookean`, `FixedCorotated`, `VonMises`: materials with stress, energy and return mapping; `PRESETS`.
    `fracture_mask`, `fragments`, `momentum`, `angular_momentum`, `gap`, `penetration`, `restitution`: diagnostics.
    `mvee_lens`, `fracture_gaussians`: FPGO in closed form; `GaussianCloud`, `render`, `Camera`: clouds, .ply, pictures.
    `sample_sdf`, `sample_mesh`, `lattice`: particles within a shape; `teapot`: the Utah teapot as a mesh.

Example:
    >>> from paperworks.simulation.collision_mpm import NACC, InterfaceForce, MPMSolver, NeoHookean
    >>> from paperworks.simulation.collision_mpm import fracture_mask, lattice
    >>> solver = MPMSolver(32, contact=InterfaceForce(mu=1.0))
    >>> disc = lattice((0.4, 0.6), (0.6, 0.8), 1 / 64)
    >>> _ = solver.add_body(disc[(disc - disc.mean(0)).norm(dim=1) < 0.1], NeoHookean(1e4), (0.0, -10.0), name="disc")
    >>> _ = solver.add_body(lattice((0.2, 0.45), (0.8, 0.55), 1 / 64), NACC(1e4), name="plate")
    >>> state = solver.run(0.02)[-1]
    >>> bool(fracture_mask(state).any())
    True

Differences from the paper:
    Details come from notes on the paper, its public reviews and a re-implementation's log, not from its text.
    The numerator of the common-velocity impulse has the other sign than in these notes, where it adds energy
    (`InterfaceForce(printed=True)` has theirs); multiplicative plasticity, F = F_E F_P, where the paper writes a sum.
    The limits 1e-4 of public codes of NACC are stresses; ours are 1e-10 kappa^2 and 1e-10 kappa, free of units.
    Singular values of F are clamped at 0.05 and alpha at -0.48/xi, which are counted (`State.clamped`, `.capped`).
    A particle counts as broken where alpha > 0: the paper's threshold is not known to us.
    More than two bodies at a node: pair after pair, in their order, each with equal and opposite impulses.
    Friction, mu > 1 (which adds energy to deformable bodies) and the distance gate are additions; so are
    the exact ellipsoids for unequal radii, in place of the paper's own approximation, which we have not seen.
    The paper begins with reconstructed Gaussians and a signed distance; here one gives a .ply cloud, a mesh or a
    signed distance. LPIPS and FID need pretrained networks that no package ships, and are not computed.
    With the rasteriser gsplat the rule that only the nearest crack Gaussian is drawn is not available.
    GIC, a baseline of the paper, is another paper's system and is not here.
"""

from paperworks._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
