"""Slow and plain, from the formulas, float64, particle by particle and node by node; imports nothing of paperworks."""

import itertools
import math

import numpy as np


def lame(E, nu):
    return E / (2 * (1 + nu)), E * nu / ((1 + nu) * (1 - 2 * nu))


def stress(kind, F, E, nu):
    """Kirchhoff stress of one deformation gradient."""
    mu, lam = lame(E, nu)
    d, J, eye = len(F), np.linalg.det(F), np.eye(len(F))
    U, S, Vt = np.linalg.svd(F)
    if kind == "neo_hookean":
        return mu * (F @ F.T - eye) + lam * math.log(J) * eye
    if kind == "corotated":
        return 2 * mu * (F - U @ Vt) @ F.T + lam * (J - 1) * J * eye
    if kind == "hencky":
        return U @ np.diag(2 * mu * np.log(S) + lam * np.log(S).sum()) @ U.T
    B = F @ F.T
    kappa = 2 * mu / 3 + lam
    return kappa / 2 * (J**2 - 1) * eye + mu * J ** (-2 / d) * (B - np.trace(B) / d * eye)


def cam_clay(F, alpha, E, nu, M, beta, xi):
    """NACC return mapping of one deformation gradient: F and alpha."""
    mu, lam = lame(E, nu)
    kappa, d = 2 * mu / 3 + lam, len(F)
    U, S, Vt = np.linalg.svd(F)
    J = np.prod(S)
    p0 = kappa * (1e-5 + math.sinh(xi * max(-alpha, 0)))
    s_hat = mu * J ** (-2 / d) * (S**2 - np.mean(S**2))
    p_tr = -(kappa / 2) * (J - 1 / J) * J
    ys = (6 - d) / 2 * (1 + 2 * beta)
    yp = M**2 * (p_tr + beta * p0) * (p_tr - p0)
    y = ys * np.sum(s_hat**2) + yp
    if p_tr > p0 or p_tr < -beta * p0:
        J_new = math.sqrt(1 - 2 * p0 / kappa) if p_tr > p0 else math.sqrt(1 + 2 * beta * p0 / kappa)
        return J_new ** (1 / d) * U @ Vt, max(alpha + math.log(J / J_new), -0.48 / xi)
    if y < 1e-10 * kappa**2:
        return F, alpha
    norm = np.linalg.norm(s_hat)
    S_new = np.sqrt(s_hat / norm * J ** (2 / d) / mu * math.sqrt(-yp / ys) + np.mean(S**2))
    p_c = (1 - beta) * p0 / 2
    q_tr = math.sqrt((6 - d) / 2) * norm
    u = np.array([p_c - p_tr, -q_tr]) / math.hypot(p_c - p_tr, q_tr)
    roots = np.roots(
        [
            M**2 * u[0] ** 2 + (1 + 2 * beta) * u[1] ** 2,
            M**2 * u[0] * (2 * p_c - p0 + beta * p0),
            M**2 * (p_c + beta * p0) * (p_c - p0),
        ]
    )
    p_x = next(p_c + root * u[0] for root in roots.real if root * u[0] * (p_tr - p_c) > 0)
    J_x = math.sqrt(abs(1 - 2 * p_x / kappa))
    return U @ np.diag(S_new) @ Vt, max(alpha + math.log(J / J_x), -0.48 / xi)


def spline(t):
    """Quadratic B-spline at a distance t of a node, in cells, and its derivative."""
    a = abs(t)
    if a < 0.5:
        return 0.75 - t * t, -2 * t
    if a < 1.5:
        return 0.5 * (1.5 - a) ** 2, -math.copysign(1.5 - a, t)
    return 0.0, 0.0


def contact(v, m, outward, mu, friction=0.0):
    """Velocities (bodies, d) at one node after contact, pair after pair."""
    v = [np.array(u) for u in v]
    for a, b in itertools.combinations(range(len(v)), 2):
        if m[a] <= 0 or m[b] <= 0:
            continue
        n = outward[a] / np.linalg.norm(outward[a]) - outward[b] / np.linalg.norm(outward[b])
        if np.linalg.norm(n) < 1e-3:
            continue
        n = n / np.linalg.norm(n)
        if (v[a] - v[b]) @ n <= 0:
            continue
        common = m[a] * m[b] * (v[b] - v[a]) / (m[a] + m[b])  # impulse on a for a common velocity
        normal = mu * (common @ n) * n
        v[a], v[b] = v[a] + normal / m[a], v[b] - normal / m[b]
        if friction:
            slip = (v[a] - v[b]) - ((v[a] - v[b]) @ n) * n
            stop = m[a] * m[b] / (m[a] + m[b]) * np.linalg.norm(slip)
            if stop > 0:
                drag = min(friction * np.linalg.norm(normal), stop) * slip / np.linalg.norm(slip)
                v[a], v[b] = v[a] - drag / m[a], v[b] + drag / m[b]
    return v


def step(particles, bodies, nodes, dx, dt, gravity, mu=1.0, friction=0.0, single=False):
    """One APIC step without plasticity and walls: x, v, C, F of every particle afterwards.

    particles: list of dicts x, v, C, F, m, V, body; bodies: list of (kind, E, nu); nodes: nodes along each axis.
    """
    d = len(nodes)
    fields = 1 if single else len(bodies)
    mass, mom, grad = (np.zeros((fields, *nodes, *shape)) for shape in ((), (d,), (d,)))
    for p in particles:
        f = 0 if single else p["body"]
        tau = stress(bodies[p["body"]][0], p["F"], *bodies[p["body"]][1:])
        for node in itertools.product(*(range(n) for n in nodes)):
            r = np.array(node) * dx - p["x"]  # from the particle to the node
            parts = [spline(-r[a] / dx) for a in range(d)]
            w = math.prod(part[0] for part in parts)
            if w == 0:
                continue
            mass[f][node] += w * p["m"]
            mom[f][node] += w * (p["m"] * (p["v"] + p["C"] @ r) - 4 / dx**2 * dt * p["V"] * tau @ r)
            for a in range(d):
                others = math.prod(parts[k][0] for k in range(d) if k != a)
                grad[f][node][a] += p["m"] * parts[a][1] / dx * others
    velocity = np.zeros_like(mom)
    for node in itertools.product(*(range(n) for n in nodes)):
        full = [f for f in range(fields) if mass[f][node] > 0]
        v = [mom[f][node] / mass[f][node] + dt * np.array(gravity) for f in full]
        if len(full) > 1:
            v = contact(v, [mass[f][node] for f in full], [grad[f][node] for f in full], mu, friction)
        for f, u in zip(full, v, strict=True):
            velocity[f][node] = u
    out = []
    for p in particles:
        f = 0 if single else p["body"]
        v, C = np.zeros(d), np.zeros((d, d))
        for node in itertools.product(*(range(n) for n in nodes)):
            r = np.array(node) * dx - p["x"]
            w = math.prod(spline(-r[a] / dx)[0] for a in range(d))
            if w:
                v += w * velocity[f][node]
                C += 4 / dx**2 * w * np.outer(velocity[f][node], r)
        out.append({**p, "x": p["x"] + dt * v, "v": v, "C": C, "F": (np.eye(d) + dt * C) @ p["F"]})
    return out


def splat(means, covariances, opacities, colors, crack, pose, position, focal, width, height, nearest_only):
    """A picture (height, width, 3) on white, pixel by pixel and Gaussian by Gaussian; pose: right, down, forward."""
    image = np.zeros((height, width, 3))
    seen = (means - position) @ pose.T
    order = np.argsort(seen[:, 2])
    flat = []
    for i in order:
        x, y, z = seen[i]
        J = np.array([[focal / z, 0, -focal * x / z**2], [0, focal / z, -focal * y / z**2]])
        S = J @ pose @ covariances[i] @ pose.T @ J.T + 0.3 * np.eye(2)
        flat.append((np.array([focal * x / z + width / 2, focal * y / z + height / 2]), np.linalg.inv(S)))
    for row in range(height):
        for column in range(width):
            light, color, met = 1.0, np.zeros(3), False
            for (centre, inverse), i in zip(flat, order, strict=True):
                r = np.array([column + 0.5, row + 0.5]) - centre
                alpha = min(0.99, opacities[i] * math.exp(-0.5 * r @ inverse @ r))
                if alpha < 1 / 255 or (crack[i] and met and nearest_only):
                    continue
                met = met or bool(crack[i])
                color += light * alpha * colors[i]
                light *= 1 - alpha
            image[row, column] = color + light
    return image
