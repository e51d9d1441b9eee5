"""The experiments: momentum and energy (M2, M3), adhesion (M1), hardening factor (M7), images (M4, M5, M6).

An arm of `momentum`, `adhesion` and `hardening` is called as ``factory(cells, dim=..., **options)`` and returns an
`MPMSolver` without bodies; an arm of `render` as ``factory()`` and returns a `Pipeline`.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from paperworks.claims.study import ExperimentConfig, Outcome, Trial, experiment

from . import pictures
from .contact import ContactModel, InterfaceForce, SingleField
from .diagnostics import angular_momentum, gap, momentum, penetration, restitution
from .ellipsoids import fracture_gaussians
from .fracture import fracture_mask, fragments
from .gaussians import GaussianCloud
from .materials import NACC, Material, NeoHookean
from .sampling import lattice
from .solver import MPMSolver
from .splatting import Camera, render, render_points, work
from .state import Grid, State

E, NU = 1e4, 0.3  # of all bodies; lengths are shares of the box, rho = 1
JITTER = 0.25  # of a spacing, on each axis


def solver(cells: int, dim: int = 2, *, contact: ContactModel, refine: int = 1, **options: object) -> MPMSolver:
    """A solver on the unit box with ``refine * cells`` cells a side."""
    return MPMSolver(Grid.unit(refine * cells, dim), dim=dim, contact=contact, **options)  # type: ignore[arg-type]


CONTACTS: dict[str, Callable[..., MPMSolver]] = {
    "none": partial(solver, contact=InterfaceForce(mu=0.0)),
    "single": partial(solver, contact=SingleField()),
    "single_fine": partial(solver, contact=SingleField(), refine=2),
    "interface_025": partial(solver, contact=InterfaceForce(mu=0.25)),
    "interface_05": partial(solver, contact=InterfaceForce(mu=0.5)),
    "interface": partial(solver, contact=InterfaceForce(mu=1.0)),
    "friction": partial(solver, contact=InterfaceForce(mu=1.0, friction=0.3)),
    "gated": partial(solver, contact=InterfaceForce(mu=1.0, gate=0.8)),
    "bouncing": partial(solver, contact=InterfaceForce(mu=1.5)),
    "printed": partial(solver, contact=InterfaceForce(mu=1.0, printed=True)),
}


def _ball(trial: Trial, centre: tuple[float, ...], radius: float, spacing: float, stream: str) -> Tensor:
    low, high = [c - radius for c in centre], [c + radius for c in centre]
    points = lattice(low, high, spacing, jitter=JITTER, generator=trial.generator(stream))
    return points[(points - torch.tensor(centre, dtype=torch.float64)).norm(dim=1) < radius]


def _plate(trial: Trial, low: tuple[float, ...], high: tuple[float, ...], spacing: float) -> Tensor:
    return lattice(low, high, spacing, jitter=JITTER, generator=trial.generator("plate"))


# ---------------------------------------------------------------------------------------------------------------------


class Discs(ExperimentConfig):
    """Two elastic discs that meet."""

    cells: int = Field(64, gt=0, description="cells along a side of the unit box")
    end: float = Field(0.03, gt=0, description="time that is simulated")
    speed: float = Field(5.0, gt=0, description="of each disc; the speed of sound is 116")
    radius: float = Field(0.1, gt=0, description="of each disc")
    apart: float = Field(0.06, ge=0, description="between the discs at the start")
    every: int = Field(10, gt=0, description="steps between two looks")


GROWTH_CAP = 1000.0  # a run whose energy has grown so much, or that has left the box, is stopped


@experiment(
    "momentum",
    config={"smoke": Discs(cells=24, apart=0.02, end=0.008), "laptop": Discs(), "paper": Discs(cells=512, every=50)},
    arms={name: CONTACTS[name] for name in ("none", "single", "interface", "friction", "bouncing", "printed")},
)
def momentum_of_discs(trial: Trial[Discs]) -> Outcome:
    """Momentum and energy while two elastic discs collide, head-on or at half a radius from it."""
    c = trial.config
    sim = trial.build(c.cells)
    spacing = sim.grid.dx / 2
    aside = {"head_on": 0.0, "oblique": 0.5}[str(trial.level["impact"])] * c.radius
    aside += 0.1 * c.radius * (2 * float(trial.rng("aim").random()) - 1)
    reach = c.radius + c.apart / 2
    for k, (x, y, v) in enumerate(((0.5 - reach, 0.5 - aside / 2, c.speed), (0.5 + reach, 0.5 + aside / 2, -c.speed))):
        points = _ball(trial, (x, y), c.radius, spacing, f"disc {k}")
        sim.add_body(points, NeoHookean(E, NU), (v, 0.0), volume=spacing**2, name=f"disc {k}")
    sim.dt = sim.stable_dt()
    steps = math.ceil(c.end / sim.dt)
    before = sim.state()
    p, spin, scale = momentum(before), angular_momentum(before), 0.0
    for k in (0, 1):
        scale += float(momentum(before.of(k)).norm())
    start = sim.energy()["total"]
    drift = twist = growth = 0.0
    after = before
    for done in range(0, steps, c.every):
        try:
            sim.step(c.every)
        except RuntimeError:
            growth = GROWTH_CAP
            break
        after = sim.state()
        drift = max(drift, float((momentum(after) - p).norm()) / scale)
        twist = max(twist, float((angular_momentum(after) - spin).norm()) / scale)
        now = sim.energy()["total"] / start
        growth = max(growth, now - 1)
        if done // c.every % 3 == 0:  # a third of the looks draws the curve
            trial.curve("energy", after.time, min(now, GROWTH_CAP))
        trial.progress(done, steps)
        if growth >= GROWTH_CAP:
            growth = GROWTH_CAP
            break
    moved = float((momentum(after.of(0)) - momentum(before.of(0))).norm()) / scale
    return Outcome(
        {
            "drift": drift,
            "twist": twist,
            "growth": growth,
            "exchanged": min(moved, GROWTH_CAP),
            "restitution": float(np.clip(restitution(before, after), -GROWTH_CAP, GROWTH_CAP)),
        }
    )


# ---------------------------------------------------------------------------------------------------------------------


class Impact(ExperimentConfig):
    """A disc that hits a plate."""

    cells: int = Field(64, gt=0, description="cells along a side of the unit box")
    end: float = Field(0.04, gt=0, description="time that is simulated")
    height: float = Field(0.03, gt=0, description="of the disc above the plate at the start")
    looks: int = Field(8, gt=0, description="states looked at, the last at the end")
    factor: float = Field(0.99, gt=0, lt=1, description="initial hardening factor of a brittle plate")


def _impact(trial: Trial[Impact], speed: float, plate: Material) -> tuple[MPMSolver, list[State]]:
    """Body 0 is the disc, elastic, of radius 0.08; body 1 the plate, 0.6 x 0.1."""
    c = trial.config
    sim = trial.build(c.cells)
    spacing = sim.grid.dx / 2
    x = 0.5 + 0.05 * (2 * float(trial.rng("aim").random()) - 1)
    disc = _ball(trial, (x, 0.63 + c.height), 0.08, spacing, "disc")
    sim.add_body(disc, NeoHookean(E, NU), (0.0, -speed), volume=spacing**2, name="disc")
    sim.add_body(_plate(trial, (0.2, 0.45), (0.8, 0.55), spacing), plate, volume=spacing**2, name="plate")
    sim.dt = sim.stable_dt()
    states = [sim.state()]
    for k in range(c.looks):
        states += sim.run(c.end * (k + 1) / c.looks)
        trial.progress(k + 1, c.looks)
    return sim, states


def attached(state: State, reach: float, slack: float) -> float:
    """Share of the plate's particles within ``reach`` of a disc's that move with the disc, to ``slack``."""
    disc, plate = state.of(0), state.of(1)
    near = torch.cdist(plate.x, disc.x).min(1).values < reach
    moving = (plate.v - disc.v.mean(0)).norm(dim=1) < slack
    return float((near & moving).double().mean())


IMPACT = {"smoke": Impact(cells=24, height=0.004, end=0.006, looks=2), "laptop": Impact()}


@experiment(
    "adhesion",
    config={**IMPACT, "paper": Impact(cells=512)},
    arms={name: CONTACTS[name] for name in CONTACTS if name not in ("bouncing", "printed")},
)
def adhesion(trial: Trial[Impact]) -> Outcome:
    """What of a plate moves with the disc that has hit it, at the end; the disc need not have flown away by then."""
    c = trial.config
    speed = float(trial.level["speed"])
    brittle = trial.level["plate"] == "brittle"
    sim, states = _impact(trial, speed, NACC(E, NU, alpha0=math.log(c.factor)) if brittle else NeoHookean(E, NU))
    last = states[-1]
    dx = 1 / c.cells
    drawn = trial.seed % 100 == 0 and brittle and speed == 10
    figures = {"impact.svg": _film(states[2::2] if c.looks > 4 else states, trial.arm)} if drawn else {}
    before, after = states[0].of(0), last.of(0)
    pushed = float((momentum(after) - momentum(before)).norm() / momentum(before).norm())
    plate = last.of(1)
    return Outcome(
        {
            "attached": attached(last, 2 * dx, 0.1 * speed),
            "attached_4": attached(last, 4 * dx, 0.1 * speed),
            "gap": gap(last) / dx,
            "closest": min(gap(s) for s in states) / dx,
            "rebound": float(after.v[:, 1].mean()) / speed,
            "exchanged": pushed,
            "penetration": max(penetration(s) for s in states),
            "broken": float(fracture_mask(plate).double().mean()),
            "growth": sim.energy()["total"] / float(before.mass.sum() * speed**2 / 2) - 1,
        },
        figures=figures,
    )


def _film(states: list[State], label: str) -> str:
    frames = []
    for state in states:
        kind = 1 + state.body + fracture_mask(state).long()
        image = pictures.plane(state.x.numpy(), kind.numpy(), (0.15, 0.3), (0.85, 0.8), 112)
        frames.append(pictures.png(image, pictures.PLANE))
    return pictures.film(frames, image.shape[1], image.shape[0], label=f"disc and plate, {label}")


@experiment(
    "hardening",
    config={
        "smoke": Impact(cells=24, height=0.004, end=0.03, looks=2),
        "laptop": Impact(end=0.05),
        "paper": Impact(cells=512, end=0.05),
    },
    arms={name: CONTACTS[name] for name in ("none", "single", "interface")},
)
def hardening(trial: Trial[Impact]) -> Outcome:
    """Pieces of a plate after an impact at speed 10, by its initial hardening factor."""
    factor = float(trial.level["factor"])
    _, states = _impact(trial, 10.0, NACC(E, NU, alpha0=math.log(factor)))
    plate = states[-1].of(1)
    pieces = fragments(plate)
    return Outcome(
        {
            "fragments": pieces.count,
            "cracks": fragments(plate, intact_only=True).count,
            "largest": float((pieces.labels == 0).double().mean()),
            "broken": float(fracture_mask(plate).double().mean()),
        }
    )


# ---------------------------------------------------------------------------------------------------------------------


class Scene(ExperimentConfig):
    """A ball that hits a brittle block in space, and how it is drawn."""

    cells: int = Field(24, gt=0, description="cells along a side of the unit box")
    end: float = Field(0.03, gt=0, description="time that is simulated")
    height: float = Field(0.02, gt=0, description="of the ball above the block at the start")
    speed: float = Field(10.0, gt=0, description="of the ball; the speed of sound is 116")
    factor: float = Field(0.98, gt=0, lt=1, description="initial hardening factor of the block")
    sigma: float = Field(0.6, gt=0, description="standard deviation of an unbroken Gaussian, in spacings")
    pixels: int = Field(96, gt=0, description="width and height of a picture")
    views: int = Field(2, ge=1, le=2, description="sides from which a picture is taken")
    sub: int = Field(4, gt=0, description="the truth has sub^3 material points a particle")
    looks: int = Field(6, gt=0, description="states looked at, for the last one before something broke")


Draw = Callable[[State, float, Tensor], GaussianCloud]


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """A way from bodies to pictures.

    Attributes:
        contact: What happens where bodies meet.
        draw: From the state, the standard deviation of an unbroken Gaussian and colours (n, 3) to a cloud.
        nearest_only: Whether of the Gaussians at cracks only the nearest along a ray is drawn.
    """

    contact: ContactModel
    draw: Draw
    nearest_only: bool = True


def keep(state: State, sigma: float, colors: Tensor) -> GaussianCloud:
    """The round Gaussians that were there, at their new places."""
    return GaussianCloud.isotropic(state.x, sigma, colors=colors)


def stretch(state: State, sigma: float, colors: Tensor) -> GaussianCloud:
    """All Gaussians deformed by the whole deformation gradient (PhysGaussian)."""
    assert state.deformation is not None
    return keep(state, sigma, colors).deformed(state.deformation)


def stretch_elastic(state: State, sigma: float, colors: Tensor) -> GaussianCloud:
    """All Gaussians deformed by the elastic part of the deformation gradient."""
    return keep(state, sigma, colors).deformed(state.F)


def shrink(state: State, sigma: float, colors: Tensor) -> GaussianCloud:
    """Broken Gaussians stay round and become half as wide: less coverage, without FPGO."""
    sizes = sigma * (1 - fracture_mask(state).to(state.x.dtype) / 2)
    return GaussianCloud.isotropic(state.x, sizes, colors=colors)


def drop(state: State, sigma: float, colors: Tensor) -> GaussianCloud:
    """Broken Gaussians are left out."""
    return keep(state, sigma, colors).where(~fracture_mask(state))


def blank(state: State, sigma: float, colors: Tensor) -> GaussianCloud:
    """Nothing is drawn."""
    return keep(state, sigma, colors).where(torch.zeros(len(state.x), dtype=torch.bool))


def fpgo(state: State, sigma: float, colors: Tensor, c: float = 1.0) -> GaussianCloud:
    """Ellipsoids about the overlaps with intact neighbours."""
    radii = torch.full_like(state.mass, c * sigma)
    return fracture_gaussians(state.x, radii, fracture_mask(state), 4 * c * sigma, colors=colors, c=c)


def _pipeline(contact: ContactModel, draw: Draw, nearest_only: bool = True) -> Pipeline:
    return Pipeline(contact, draw, nearest_only)


PIPELINES: dict[str, Callable[[], Pipeline]] = {
    "blank": partial(_pipeline, InterfaceForce(), blank),
    "physgaussian": partial(_pipeline, SingleField(), stretch),
    "no_cmpm": partial(_pipeline, SingleField(), fpgo),
    "stretch": partial(_pipeline, InterfaceForce(), stretch),
    "stretch_elastic": partial(_pipeline, InterfaceForce(), stretch_elastic),
    "keep": partial(_pipeline, InterfaceForce(), keep),
    "shrink": partial(_pipeline, InterfaceForce(), shrink),
    "drop": partial(_pipeline, InterfaceForce(), drop),
    "fpgo_no_occlusion": partial(_pipeline, InterfaceForce(), fpgo, False),
    "fpgo_wide": partial(_pipeline, InterfaceForce(), partial(fpgo, c=2.0)),
    "fpgo": partial(_pipeline, InterfaceForce(), fpgo),
}


def texture(X: Tensor) -> Tensor:
    """A colour (n, 3) for each material point (n, 3): stripes of three directions and wavelengths."""
    waves = torch.tensor([[40.0, 9.0, 5.0], [6.0, 33.0, 21.0], [13.0, 4.0, 47.0]], dtype=X.dtype)
    return 0.5 + 0.4 * torch.sin(X @ waves.T)


def _cameras(pixels: int) -> list[Camera]:
    return [
        Camera(position, (0.5, 0.47, 0.5), fov=32, width=pixels, height=pixels)
        for position in ((0.5, 1.15, 1.9), (1.6, 0.9, 1.3))
    ]


def _truth(
    state: State, sub: int, spacing: float, whole: bool, camera: Camera, flag: Tensor | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Picture and coverage of the deformed material itself, sub^3 points a particle, opaque.

    With a flag (n,) for each particle it is the colour: white where true.
    """
    axis = ((torch.arange(sub, dtype=torch.float64) + 0.5) / sub - 0.5) * spacing
    offset = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
    F = state.deformation if whole else state.F
    assert F is not None
    points = (state.x[:, None, :] + offset @ F.mT).reshape(-1, 3)
    colors = texture((state.rest[:, None, :] + offset).reshape(-1, 3))
    if flag is not None:
        colors = flag.to(points.dtype)[:, None].repeat(1, sub**3).reshape(-1, 1).expand(-1, 3)
    picture = render_points(points, colors, camera)
    return picture.image.numpy(), picture.opacity.numpy() > 0


PERFECT = 60.0  # dB, given to pictures that agree as well or better


def _psnr(a: np.ndarray, b: np.ndarray) -> float:
    return min(PERFECT, float(-10 * np.log10(max(float(np.mean((a - b) ** 2)), 1e-10))))


@experiment(
    "render",
    config={
        "smoke": Scene(cells=14, end=0.008, height=0.005, pixels=36, sub=2, looks=2, views=1),
        "laptop": Scene(),
        "paper": Scene(cells=200, pixels=800, end=0.05),
    },
    arms=PIPELINES,
)
def images(trial: Trial[Scene]) -> Outcome:
    """Pictures of a broken block beside pictures of the same deformed material, densely sampled."""
    from skimage.metrics import structural_similarity

    c = trial.config
    pipeline: Pipeline = trial.build()
    sim = MPMSolver(c.cells, dim=3, contact=pipeline.contact, track=True, device=trial.device)
    spacing = sim.grid.dx / 2
    aim = 0.05 * (2 * trial.rng("aim").random(2) - 1)
    ball = _ball(trial, (0.5 + aim[0], 0.66 + c.height, 0.5 + aim[1]), 0.1, spacing, "ball")
    sim.add_body(ball, NeoHookean(E, NU), (0.0, -c.speed, 0.0), volume=spacing**3, name="ball")
    block = _plate(trial, (0.26, 0.44, 0.26), (0.74, 0.56, 0.74), spacing)
    sim.add_body(block, NACC(E, NU, alpha0=math.log(c.factor)), volume=spacing**3, name="block")
    sim.dt = sim.stable_dt()
    whole = state = sim.state().cpu()
    for k in range(c.looks):
        state = sim.run(c.end * (k + 1) / c.looks)[-1].cpu()  # pictures are made there
        whole = whole if bool(fracture_mask(state).any()) else state
        trial.progress(k + 1, c.looks)
    sigma = c.sigma * spacing
    cloud = pipeline.draw(state, sigma, texture(state.rest))
    calm = pipeline.draw(whole, sigma, texture(whole.rest))
    found: dict[str, list[float]] = {}

    def note(**values: float) -> None:
        for name, value in values.items():
            found.setdefault(name, []).append(value)

    figures = {}
    for k, camera in enumerate(_cameras(c.pixels)[: c.views]):
        picture = render(cloud, camera, nearest_only=pipeline.nearest_only)
        image, opacity = picture.image.numpy(), picture.opacity.numpy()
        truth, covered = _truth(state, c.sub, spacing, False, camera)
        torn, _ = _truth(state, c.sub, spacing, True, camera)
        cracked, _ = _truth(state, c.sub, spacing, False, camera, fracture_mask(state))
        at_crack = covered & (cracked[..., 0] > 0.5)
        before = render(calm, camera, nearest_only=pipeline.nearest_only).image.numpy()
        note(
            psnr=_psnr(image, truth),
            ssim=float(structural_similarity(image, truth, channel_axis=2, data_range=1.0)),
            psnr_crack=_psnr(image[at_crack], truth[at_crack]) if at_crack.any() else PERFECT,
            psnr_whole=_psnr(image, torn),
            psnr_before=_psnr(image, before),
            uncovered=float((covered & (opacity < 0.5)).sum() / covered.sum()),
            spilt=float((~covered & (opacity >= 0.5)).sum() / covered.sum()),
            work=float(work(cloud, camera)),
        )
        if trial.seed % 100 == 0 and k == 0 and c.pixels <= 96:
            stills = [pictures.png(*pictures.quantised(i)) for i in (truth, image)]
            figures["block.svg"] = pictures.film(
                stills, c.pixels, c.pixels, label=f"truth and {trial.arm}", seconds=1.5
            )
    metrics = {name: float(np.mean(values)) for name, values in found.items()}
    return Outcome({**metrics, "broken": float(fracture_mask(state.of(1)).double().mean())}, figures=figures)
