"""A cloud of 3-D Gaussians as 3D Gaussian Splatting keeps it, in memory and in .ply files."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

SH0 = 0.5 / math.sqrt(math.pi)  # the constant spherical harmonic


def quaternion(R: Tensor) -> Tensor:
    """Unit quaternions (n, 4), real part first, of rotation matrices R (n, 3, 3)."""
    # Four times q q^T has columns proportional to q; the largest diagonal entry is safe to divide by.
    t = R.diagonal(dim1=-2, dim2=-1)
    x, y, z = t.unbind(-1)
    a, b, c = R[:, 2, 1] - R[:, 1, 2], R[:, 0, 2] - R[:, 2, 0], R[:, 1, 0] - R[:, 0, 1]
    d, e, f = R[:, 0, 1] + R[:, 1, 0], R[:, 0, 2] + R[:, 2, 0], R[:, 1, 2] + R[:, 2, 1]
    rows = [
        torch.stack([1 + x + y + z, a, b, c], -1),
        torch.stack([a, 1 + x - y - z, d, e], -1),
        torch.stack([b, d, 1 - x + y - z, f], -1),
        torch.stack([c, e, f, 1 - x - y + z], -1),
    ]
    outer = torch.stack(rows, -2)
    best = outer.diagonal(dim1=-2, dim2=-1).argmax(-1)
    q = outer[torch.arange(len(R), device=R.device), best]
    return q / q.norm(dim=-1, keepdim=True)


def rotation_matrix(q: Tensor) -> Tensor:
    """Rotation matrices (n, 3, 3) of quaternions q (n, 4), real part first, of any length > 0."""
    w, x, y, z = (q / q.norm(dim=-1, keepdim=True)).unbind(-1)
    rows = [
        torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], -1),
        torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], -1),
        torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1),
    ]
    return torch.stack(rows, -2)


@dataclasses.dataclass(frozen=True)
class GaussianCloud:
    """n Gaussians.

    Args:
        means: Centres (n, 3).
        scales: Standard deviations along the own axes (n, 3), > 0.
        rotations: Quaternions (n, 4), real part first.
        opacities: In (0, 1) (n,).
        sh: Spherical-harmonic coefficients of the colour (n, k, 3), k = 1, 4, 9 or 16.
        crack: Whether it was made at a crack (n,), bool: along a ray only the nearest of these is drawn.
    """

    means: Tensor
    scales: Tensor
    rotations: Tensor
    opacities: Tensor
    sh: Tensor
    crack: Tensor

    def __post_init__(self) -> None:
        """Refuse what does not fit together."""
        n = len(self.means)
        want = {"means": (n, 3), "scales": (n, 3), "rotations": (n, 4), "opacities": (n,), "crack": (n,)}
        for name, shape in want.items():
            if tuple(getattr(self, name).shape) != shape:
                raise ValueError(f"{name} must have shape {shape}, got {tuple(getattr(self, name).shape)}")
        if self.sh.ndim != 3 or self.sh.shape[0] != n or self.sh.shape[1] not in (1, 4, 9, 16) or self.sh.shape[2] != 3:
            raise ValueError(f"sh must have shape ({n}, 1|4|9|16, 3), got {tuple(self.sh.shape)}")

    def __len__(self) -> int:
        """Number of Gaussians."""
        return len(self.means)

    @classmethod
    def isotropic(
        cls, means: Tensor, sigma: Tensor | float, *, colors: Tensor | None = None, opacities: Tensor | None = None
    ) -> "GaussianCloud":
        """Round Gaussians.

        Args:
            means: Centres (n, 3).
            sigma: Standard deviations (n,), or one.
            colors: RGB (n, 3); grey unless given.
            opacities: (n,); 0.95 unless given.
        """
        n = len(means)
        size = torch.as_tensor(sigma, dtype=means.dtype, device=means.device).expand(n)
        turn = torch.zeros(n, 4, dtype=means.dtype, device=means.device)
        turn[:, 0] = 1
        rgb = torch.full_like(means, 0.5) if colors is None else colors
        seen = torch.full_like(means[:, 0], 0.95) if opacities is None else opacities
        flag = torch.zeros(n, dtype=torch.bool, device=means.device)
        return cls(means, size[:, None].expand(n, 3), turn, seen, ((rgb - 0.5) / SH0)[:, None, :], flag)

    @classmethod
    def ellipsoids(
        cls, means: Tensor, axis: Tensor, axial: Tensor, radial: Tensor, *, crack: bool = False
    ) -> "GaussianCloud":
        """Gaussians of revolution, grey.

        Args:
            means: Centres (n, 3).
            axis: Unit vectors (n, 3).
            axial: Standard deviations along the axis (n,).
            radial: Standard deviations across it (n,).
            crack: Flag of all.
        """
        made = cls.isotropic(means, radial)
        # The rotation of e_x to the axis; its sign does not matter, so that it can point forwards.
        u = torch.where(axis[:, :1] < 0, -axis, axis)
        q = torch.stack([1 + u[:, 0], torch.zeros_like(axial), -u[:, 2], u[:, 1]], -1)
        return dataclasses.replace(
            made,
            scales=torch.stack([axial, radial, radial], -1),
            rotations=q / q.norm(dim=-1, keepdim=True),
            crack=torch.full_like(made.crack, crack),
        )

    def deformed(self, F: Tensor) -> "GaussianCloud":
        """Covariances F Sigma F^T, as PhysGaussian draws a deformed body.

        Args:
            F: Deformation gradients (n, 3, 3).
        """
        half = F @ (rotation_matrix(self.rotations) * self.scales[:, None, :])
        U, S, _ = torch.linalg.svd(half)
        U = U * torch.linalg.det(U).sign()[:, None, None]
        return dataclasses.replace(self, scales=S.clamp(min=1e-12), rotations=quaternion(U))

    def covariance(self) -> Tensor:
        """Covariances (n, 3, 3)."""
        half = rotation_matrix(self.rotations) * self.scales[:, None, :]
        return half @ half.mT

    def colors(self) -> Tensor:
        """RGB (n, 3) of the constant harmonic, not clipped."""
        return 0.5 + SH0 * self.sh[:, 0]

    def like(self, other: "GaussianCloud", rows: Tensor) -> "GaussianCloud":
        """The same shapes with colour and opacity of ``rows`` (n,), int64, of another cloud."""
        return dataclasses.replace(self, opacities=other.opacities[rows], sh=other.sh[rows])

    def where(self, rows: Tensor) -> "GaussianCloud":
        """Those at ``rows``: (n,), bool, or numbers, int64."""
        return GaussianCloud(**{f.name: getattr(self, f.name)[rows] for f in dataclasses.fields(self)})

    def join(self, other: "GaussianCloud") -> "GaussianCloud":
        """These, then those of another cloud with as many harmonics."""
        parts = {f.name: torch.cat([getattr(self, f.name), getattr(other, f.name)]) for f in dataclasses.fields(self)}
        return GaussianCloud(**parts)

    def to_ply(self, path: str | Path) -> None:
        """Write a .ply with the names of 3D Gaussian Splatting, plus ``crack`` (0 or 1).

        Args:
            path: File to write; scales are stored as logarithms, opacities as logits, harmonics channel by channel.
        """
        from plyfile import PlyData, PlyElement

        n, k = self.sh.shape[:2]
        rest = self.sh[:, 1:].transpose(1, 2).reshape(n, 3 * (k - 1))
        zero = torch.zeros_like(self.means)
        columns = {
            **dict(zip(("x", "y", "z"), self.means.T, strict=True)),
            **dict(zip(("nx", "ny", "nz"), zero.T, strict=True)),
            **{f"f_dc_{i}": self.sh[:, 0, i] for i in range(3)},
            **{f"f_rest_{i}": rest[:, i] for i in range(rest.shape[1])},
            "opacity": torch.logit(self.opacities.clamp(1e-6, 1 - 1e-6)),
            **{f"scale_{i}": self.scales[:, i].log() for i in range(3)},
            **{f"rot_{i}": self.rotations[:, i] for i in range(4)},
        }
        table = np.zeros(n, dtype=[*((name, "f4") for name in columns), ("crack", "u1")])
        for name, value in columns.items():
            table[name] = value.detach().cpu().numpy()
        table["crack"] = self.crack.cpu().numpy()
        PlyData([PlyElement.describe(table, "vertex")]).write(str(path))

    @classmethod
    def from_ply(cls, path: str | Path) -> "GaussianCloud":
        """Read a .ply as 3D Gaussian Splatting and its kin write it, in float32.

        Args:
            path: File to read.

        Raises:
            ValueError: When an attribute is missing.
        """
        from plyfile import PlyData

        table = PlyData.read(str(path))["vertex"].data
        names = table.dtype.names or ()

        def columns(*wanted: str) -> Tensor:
            for name in wanted:
                if name not in names:
                    raise ValueError(f"{path} has no vertex attribute {name!r}; 3D Gaussian Splatting writes one")
            return torch.from_numpy(np.stack([np.asarray(table[name], dtype=np.float32) for name in wanted], 1))

        higher = sorted((n for n in names if n.startswith("f_rest_")), key=lambda name: int(name[7:]))
        sh = columns("f_dc_0", "f_dc_1", "f_dc_2")[:, None, :]
        if higher:
            sh = torch.cat([sh, columns(*higher).unflatten(1, (3, len(higher) // 3)).transpose(1, 2)], 1)
        crack = columns("crack")[:, 0] > 0 if "crack" in names else torch.zeros(len(sh), dtype=torch.bool)
        return cls(
            means=columns("x", "y", "z"),
            scales=columns("scale_0", "scale_1", "scale_2").exp(),
            rotations=columns("rot_0", "rot_1", "rot_2", "rot_3"),
            opacities=torch.sigmoid(columns("opacity")[:, 0]),
            sh=sh,
            crack=crack,
        )
