"""The solver's kernels in Warp: one source for CPU and GPU, float32 and float64, two and three dimensions.

`kernels(dim, dtype)` makes one Warp module, compiled at first use and kept in Warp's cache in the user's cache folder.
The materials repeat `materials.py` and the contact repeats `contact.py`, which say what the formulas are.
"""

# mypy: ignore-errors
# The annotations within are Warp types made at run time.

import functools
import types
from typing import Any

import warp as wp

from .materials import LARGEST_HARDENING, SMALLEST_STRETCH

# Slots of the counters: 1 + body that left the grid, 1 + body with a number that is not finite, clamps.
LEFT, BROKEN, CRUSHED, CAPPED = 0, 1, 2, 3


@functools.cache
def start() -> None:
    """Start Warp, with errors alone in its log where the process has not started it already."""
    if hasattr(wp, "LOG_ERROR"):
        wp.config.log_level = wp.LOG_ERROR
    else:
        wp.config.quiet = True
    wp.init()


@functools.cache
def kernels(dim: int, dtype: Any, serial: bool) -> types.SimpleNamespace:
    """The kernels for one dimension and one float type.

    Args:
        dim: 2 or 3.
        dtype: ``wp.float32`` or ``wp.float64``.
        serial: Whether one thread runs them, as Warp does on a CPU: then adding needs no atomic operations, which
            would take most of the time there.

    Returns:
        A namespace with the kernels ``p2g``, ``update`` and ``g2p`` and the types ``vec``, ``mat``, ``ivec``.
    """
    start()
    module = wp.get_module(f"paperworks_collision_mpm_{dim}d_{dtype.__name__}_{'serial' if serial else 'parallel'}")
    wp.set_module_options({"enable_backward": False, "fast_math": False, "max_unroll": 9}, module=module)
    vec = wp.types.vector(length=dim, dtype=dtype)
    mat = wp.types.matrix(shape=(dim, dim), dtype=dtype)
    weights = wp.types.matrix(shape=(3, dim), dtype=dtype)
    ivec = wp.types.vector(length=dim, dtype=wp.int32)
    d = dtype(dim)
    zero, half, one, two = dtype(0), dtype(0.5), dtype(1), dtype(2)
    smallest, cap = dtype(SMALLEST_STRETCH), dtype(LARGEST_HARDENING)
    rounding = dtype(1e-30 if dtype is wp.float64 else 1e-14)

    @wp.func(module=module)
    def bspline(fx: vec) -> weights:
        """Quadratic B-spline weights of the three nodes on each axis; fx in [0.5, 1.5)."""
        w = weights()
        for axis in range(dim):
            f = fx[axis]
            w[0, axis] = half * (dtype(1.5) - f) * (dtype(1.5) - f)
            w[1, axis] = dtype(0.75) - (f - one) * (f - one)
            w[2, axis] = half * (f - half) * (f - half)
        return w

    @wp.func(module=module)
    def slopes(fx: vec) -> weights:
        """Derivatives of `bspline` by fx, which is in cells."""
        w = weights()
        for axis in range(dim):
            f = fx[axis]
            w[0, axis] = f - dtype(1.5)
            w[1, axis] = -two * (f - one)
            w[2, axis] = f - half
        return w

    if dim == 2:

        @wp.func(module=module)
        def corner(k: int) -> ivec:
            return ivec(k / 3, k % 3)

        @wp.func(module=module)
        def flat(base: ivec, o: ivec, shape: ivec) -> int:
            return (base[0] + o[0]) * shape[1] + base[1] + o[1]

        @wp.func(module=module)
        def unflat(index: int, shape: ivec) -> ivec:
            return ivec(index / shape[1], index % shape[1])

        @wp.func(module=module)
        def weight(w: weights, o: ivec) -> dtype:
            return w[o[0], 0] * w[o[1], 1]

        @wp.func(module=module)
        def slope(w: weights, g: weights, o: ivec) -> vec:
            return vec(g[o[0], 0] * w[o[1], 1], w[o[0], 0] * g[o[1], 1])

        @wp.func(module=module)
        def left_rotation(FV: mat) -> mat:
            s = wp.sqrt(FV[0, 0] * FV[0, 0] + FV[1, 0] * FV[1, 0])
            return mat(FV[0, 0] / s, -FV[1, 0] / s, FV[1, 0] / s, FV[0, 0] / s)

    else:

        @wp.func(module=module)
        def corner(k: int) -> ivec:
            return ivec(k / 9, (k / 3) % 3, k % 3)

        @wp.func(module=module)
        def flat(base: ivec, o: ivec, shape: ivec) -> int:
            return ((base[0] + o[0]) * shape[1] + base[1] + o[1]) * shape[2] + base[2] + o[2]

        @wp.func(module=module)
        def unflat(index: int, shape: ivec) -> ivec:
            return ivec(index / (shape[1] * shape[2]), (index / shape[2]) % shape[1], index % shape[2])

        @wp.func(module=module)
        def weight(w: weights, o: ivec) -> dtype:
            return w[o[0], 0] * w[o[1], 1] * w[o[2], 2]

        @wp.func(module=module)
        def slope(w: weights, g: weights, o: ivec) -> vec:
            return vec(
                g[o[0], 0] * w[o[1], 1] * w[o[2], 2],
                w[o[0], 0] * g[o[1], 1] * w[o[2], 2],
                w[o[0], 0] * w[o[1], 1] * g[o[2], 2],
            )

        @wp.func(module=module)
        def left_rotation(FV: mat) -> mat:
            a = wp.normalize(vec(FV[0, 0], FV[1, 0], FV[2, 0]))
            b = wp.normalize(vec(FV[0, 1], FV[1, 1], FV[2, 1]))
            c = wp.cross(a, b)
            return mat(a[0], b[0], c[0], a[1], b[1], c[1], a[2], b[2], c[2])

    if serial:

        @wp.func(module=module)
        def add_number(grid: wp.array2d(dtype=dtype), f: int, i: int, value: dtype):
            grid[f, i] = grid[f, i] + value

        @wp.func(module=module)
        def add_vector(grid: wp.array2d(dtype=vec), f: int, i: int, value: vec):
            grid[f, i] = grid[f, i] + value

    else:

        @wp.func(module=module)
        def add_number(grid: wp.array2d(dtype=dtype), f: int, i: int, value: dtype):
            wp.atomic_add(grid, f, i, value)

        @wp.func(module=module)
        def add_vector(grid: wp.array2d(dtype=vec), f: int, i: int, value: vec):
            wp.atomic_add(grid, f, i, value)

    # --- materials ----------------------------------------------------------------------------------------------

    @wp.func(module=module)
    def deviator(A: mat) -> mat:
        return A - (wp.trace(A) / d) * wp.identity(n=dim, dtype=dtype)

    @wp.func(module=module, inline=False)
    def right_rotation(F: mat) -> mat:
        """V of F = U S V^T by Jacobi's method on F^T F: columns in falling order of stretch, det V = 1."""
        A = wp.transpose(F) * F
        V = wp.identity(n=dim, dtype=dtype)
        sweep = int(0)  # noqa: RUF046, UP018 - a constant in Warp otherwise
        while sweep < 12:
            off = zero
            for i in range(dim - 1):
                for j in range(i + 1, dim):
                    off += A[i, j] * A[i, j]
                    if A[i, j] != zero:
                        theta = (A[j, j] - A[i, i]) / (two * A[i, j])
                        t = one / (wp.abs(theta) + wp.sqrt(theta * theta + one))
                        if theta < zero:
                            t = -t
                        c = one / wp.sqrt(t * t + one)
                        s = t * c
                        R = wp.identity(n=dim, dtype=dtype)
                        R[i, i] = c
                        R[j, j] = c
                        R[i, j] = s
                        R[j, i] = -s
                        A = wp.transpose(R) * A * R
                        V = V * R
            sweep += 1
            if off <= rounding * wp.trace(A) * wp.trace(A):
                sweep = 12
        for i in range(dim - 1):
            for j in range(i + 1, dim):
                if A[j, j] > A[i, i]:
                    kept = A[i, i]
                    A[i, i] = A[j, j]
                    A[j, j] = kept
                    for r in range(dim):  # a swap of columns changes the sign of one: V stays a rotation
                        old = V[r, i]
                        V[r, i] = V[r, j]
                        V[r, j] = -old
        return V

    @wp.func(module=module)
    def stretches(F: mat, U: mat, V: mat) -> vec:
        """S of F = U S V^T; the last may be negative."""
        return wp.get_diag(wp.transpose(U) * F * V)

    @wp.func(module=module, inline=False)  # the decompositions would weigh on the kernel where they are not taken
    def rotated_stress(kind: int, F: mat, mu: dtype, lam: dtype) -> mat:
        V = right_rotation(F)
        U = left_rotation(F * V)
        J = wp.determinant(F)
        R = U * wp.transpose(V)
        tau = two * mu * (F - R) * wp.transpose(F) + lam * (J - one) * J * wp.identity(n=dim, dtype=dtype)
        if kind == 2:
            S = stretches(F, U, V)
            total = zero
            for i in range(dim):
                S[i] = wp.log(S[i])
                total += S[i]
            for i in range(dim):
                S[i] = two * mu * S[i] + lam * total
            tau = U * wp.diag(S) * wp.transpose(U)
        return tau

    @wp.func(module=module)
    def kirchhoff(kind: int, F: mat, mu: dtype, lam: dtype, kappa: dtype) -> mat:
        if kind == 1 or kind == 2:
            return rotated_stress(kind, F, mu, lam)
        J = wp.determinant(F)
        eye = wp.identity(n=dim, dtype=dtype)
        B = F * wp.transpose(F)
        if kind == 3:
            return mu * wp.pow(J, -two / d) * deviator(B) + half * kappa * (J * J - one) * eye
        return mu * (B - eye) + lam * wp.log(J) * eye

    @wp.func(module=module)
    def clamp_stretch(F: mat, counters: wp.array(dtype=wp.int32)) -> mat:
        G = F
        size = wp.sqrt(wp.ddot(F, F))
        bound = smallest * size
        if dim == 3:
            bound = bound * size
        if wp.determinant(F) < bound:  # s_min >= J / |F|^(d-1): only then can one lie below
            V = right_rotation(F)
            U = left_rotation(F * V)
            S = stretches(F, U, V)
            if wp.min(S) < smallest:
                for i in range(dim):
                    S[i] = wp.max(S[i], smallest)
                G = U * wp.diag(S) * wp.transpose(V)
                wp.atomic_add(counters, CRUSHED, 1)
        return G

    @wp.func(module=module, inline=False)
    def radial_return(F: mat, alpha: dtype, mu: dtype, yield_stress: dtype, hardening: dtype):
        V = right_rotation(F)
        U = left_rotation(F * V)
        S = stretches(F, U, V)
        mean = zero
        for i in range(dim):
            S[i] = wp.log(S[i])
            mean += S[i] / d
        size = zero
        for i in range(dim):
            size += (S[i] - mean) * (S[i] - mean)
        size = wp.sqrt(size)
        root = wp.sqrt(two / dtype(3.0))
        flow = (two * mu * size - root * (yield_stress + hardening * alpha)) / (two * mu + two * hardening / dtype(3.0))
        G = F
        risen = alpha
        if flow > zero:
            for i in range(dim):
                S[i] = wp.exp(mean + (S[i] - mean) * (one - flow / size))
            G = U * wp.diag(S) * wp.transpose(V)
            risen = alpha + root * flow
        return G, risen

    @wp.func(module=module, inline=False)
    def cam_clay(
        F: mat,
        alpha: dtype,
        mu: dtype,
        kappa: dtype,
        M: dtype,
        beta: dtype,
        xi: dtype,
        counters: wp.array(dtype=wp.int32),
    ):
        J = wp.determinant(F)
        p0 = kappa * (dtype(1e-5) + wp.sinh(xi * wp.max(-alpha, zero)))
        p_tr = -half * kappa * (J - one / J) * J
        s = mu * wp.pow(J, -two / d) * deviator(F * wp.transpose(F))
        size = wp.sqrt(wp.ddot(s, s))
        ys = (dtype(6.0) - d) / two * (one + two * beta)
        yp = M * M * (p_tr + beta * p0) * (p_tr - p0)
        G = F
        risen = alpha
        tip = p_tr > p0 or p_tr < -beta * p0
        if tip:
            edge = p0
            if p_tr < -beta * p0:
                edge = -beta * p0
            J_tip = wp.sqrt(wp.max(one - two * edge / kappa, zero))
            V = right_rotation(F)
            U = left_rotation(F * V)
            G = wp.pow(J_tip, one / d) * (U * wp.transpose(V))
            risen = alpha + wp.log(J / J_tip)
        elif ys * size * size + yp >= dtype(1e-10) * kappa * kappa:
            V = right_rotation(F)
            U = left_rotation(F * V)
            S = stretches(F, U, V)
            mean = zero
            for i in range(dim):
                mean += S[i] * S[i] / d
            scale = wp.sqrt(wp.max(-yp / ys, zero)) / size
            for i in range(dim):
                S[i] = wp.sqrt(wp.max(mean + (S[i] * S[i] - mean) * scale, smallest * smallest))
            G = U * wp.diag(S) * wp.transpose(V)
            if p0 > dtype(1e-10) * kappa and p_tr > -beta * p0 and p_tr < p0:
                p_c = half * (one - beta) * p0
                q_tr = wp.sqrt((dtype(6.0) - d) / two) * size
                length = wp.sqrt((p_c - p_tr) * (p_c - p_tr) + q_tr * q_tr)
                u0 = (p_c - p_tr) / length
                u1 = -q_tr / length
                a = M * M * u0 * u0 + (one + two * beta) * u1 * u1
                b = M * M * u0 * (two * p_c - p0 + beta * p0)
                c = M * M * (p_c + beta * p0) * (p_c - p0)
                root = wp.sqrt(wp.max(b * b - dtype(4.0) * a * c, zero))
                p_x = p_c + u0 * (-b + root) / (two * a)
                if (p_x - p_c) * (p_tr - p_c) <= zero:
                    p_x = p_c + u0 * (-b - root) / (two * a)
                J_x = wp.sqrt(wp.abs(one - two * p_x / kappa))
                if J_x > dtype(1e-4):
                    risen = alpha + wp.log(J / J_x)
        if risen < -cap / xi:
            risen = -cap / xi
            if alpha > -cap / xi:
                wp.atomic_add(counters, CAPPED, 1)
        return G, risen

    # --- the step -----------------------------------------------------------------------------------------------

    @wp.func(module=module)
    def inside(base: ivec, shape: ivec) -> bool:
        good = True
        for axis in range(dim):
            if base[axis] < 0 or base[axis] + 3 > shape[axis]:
                good = False
        return good

    @wp.func(module=module)
    def base_of(X: vec) -> ivec:
        base = ivec()
        for axis in range(dim):
            base[axis] = wp.int32(wp.floor(X[axis] - half))
        return base

    @wp.func(module=module)
    def remainder(X: vec, base: ivec) -> vec:
        fx = vec()
        for axis in range(dim):
            fx[axis] = X[axis] - dtype(base[axis])
        return fx

    @wp.func(module=module)
    def offset_of(o: ivec, fx: vec) -> vec:
        """From the particle to a node, in cells."""
        found = vec()
        for axis in range(dim):
            found[axis] = dtype(o[axis]) - fx[axis]
        return found

    @wp.kernel(module=module)
    def p2g(
        x: wp.array(dtype=vec),
        v: wp.array(dtype=vec),
        C: wp.array(dtype=mat),
        F: wp.array(dtype=mat),
        mass: wp.array(dtype=dtype),
        volume: wp.array(dtype=dtype),
        body: wp.array(dtype=wp.int32),
        kind: wp.array(dtype=wp.int32),
        parameter: wp.array2d(dtype=dtype),
        field: wp.array(dtype=wp.int32),
        shape: ivec,
        origin: vec,
        dx: dtype,
        dt: dtype,
        affine: dtype,  # 1 for APIC, 0 for FLIP
        separate: int,
        gated: int,
        grid_mass: wp.array2d(dtype=dtype),
        grid_momentum: wp.array2d(dtype=vec),
        grid_before: wp.array2d(dtype=vec),
        grid_normal: wp.array2d(dtype=vec),
        grid_centre: wp.array2d(dtype=vec),
        counters: wp.array(dtype=wp.int32),
    ):
        p = wp.tid()
        b = body[p]
        X = (x[p] - origin) / dx
        base = base_of(X)
        if not inside(base, shape):
            counters[LEFT] = b + 1
            return
        fx = remainder(X, base)
        w = bspline(fx)
        m = mass[p]
        f = field[b]
        tau = kirchhoff(kind[b], F[p], parameter[b, 0], parameter[b, 1], parameter[b, 2])
        # Acts on offsets in cells.
        carry = (affine * m * dx) * C[p] - (dtype(4.0) * dt * volume[p] / dx) * tau
        push = m * v[p]
        # What not every run needs has a loop of its own, not unrolled, which keeps this one tight.
        many = int(wp.static(3**dim))
        for k in range(wp.static(3**dim)):
            o = corner(k)
            i = flat(base, o, shape)
            wi = weight(w, o)
            add_number(grid_mass, f, i, wi * m)
            add_vector(grid_momentum, f, i, wi * (push + carry * offset_of(o, fx)))
        if affine == zero:
            for k in range(many):
                o = corner(k)
                add_vector(grid_before, f, flat(base, o, shape), weight(w, o) * push)
        if separate != 0:
            g = slopes(fx)
            for k in range(wp.static(3**dim)):
                o = corner(k)
                add_vector(grid_normal, f, flat(base, o, shape), m * slope(w, g, o))
        if gated != 0:
            for k in range(many):
                o = corner(k)
                add_vector(grid_centre, f, flat(base, o, shape), -(weight(w, o) * m) * offset_of(o, fx))

    @wp.kernel(module=module)
    def update(
        grid_mass: wp.array2d(dtype=dtype),
        grid_momentum: wp.array2d(dtype=vec),  # becomes velocity
        grid_before: wp.array2d(dtype=vec),  # becomes velocity
        grid_normal: wp.array2d(dtype=vec),
        grid_centre: wp.array2d(dtype=vec),
        shape: ivec,
        gravity: vec,
        dt: dtype,
        affine: dtype,
        separate: int,
        restitution: dtype,  # the paper's mu
        friction: dtype,
        gate: dtype,  # in cells; not asked for when below 0
        printed: int,
        wall: int,
        margin: int,
    ):
        i = wp.tid()
        count = grid_mass.shape[0]
        for f in range(count):
            m = grid_mass[f, i]
            if m > zero:
                grid_momentum[f, i] = grid_momentum[f, i] / m + dt * gravity
                if affine == zero:
                    grid_before[f, i] = grid_before[f, i] / m
        if separate != 0:
            for a in range(count - 1):
                ma = grid_mass[a, i]
                if ma > zero:
                    na = grid_normal[a, i]
                    for b in range(a + 1, count):
                        mb = grid_mass[b, i]
                        nb = grid_normal[b, i]
                        la = wp.length(na)
                        lb = wp.length(nb)
                        if mb > zero and la > dtype(1e-12) * ma and lb > dtype(1e-12) * mb:
                            n = na / la - nb / lb
                            ln = wp.length(n)
                            if ln >= dtype(1e-3):
                                n = n / ln
                                va = grid_momentum[a, i]
                                vb = grid_momentum[b, i]
                                rel = wp.dot(va - vb, n)
                                near = True
                                if gate >= zero:
                                    near = wp.dot(grid_centre[b, i] / mb - grid_centre[a, i] / ma, n) < gate
                                if rel > zero and near:
                                    total = ma + mb
                                    j = -restitution * ma * mb / total * rel
                                    if printed != 0:
                                        j = restitution * wp.dot(ma * ma * va - mb * mb * vb, n) / total
                                    va += (j / ma) * n
                                    vb -= (j / mb) * n
                                    if friction > zero:
                                        slip = va - vb
                                        slip = slip - wp.dot(slip, n) * n
                                        speed = wp.length(slip)
                                        if speed > zero:
                                            q = wp.min(friction * wp.abs(j), ma * mb / total * speed) / speed
                                            va -= (q / ma) * slip
                                            vb += (q / mb) * slip
                                    grid_momentum[a, i] = va
                                    grid_momentum[b, i] = vb
        if wall != 0:
            cell = unflat(i, shape)
            for axis in range(dim):
                low = cell[axis] < margin
                high = cell[axis] >= shape[axis] - margin
                if low or high:
                    for f in range(count):
                        u = grid_momentum[f, i]
                        outward = (low and u[axis] < zero) or (high and u[axis] > zero)
                        if wall == 1:
                            u = vec()
                        elif wall == 2 or outward:
                            u[axis] = zero
                        grid_momentum[f, i] = u

    @wp.kernel(module=module)
    def g2p(
        x: wp.array(dtype=vec),
        v: wp.array(dtype=vec),
        C: wp.array(dtype=mat),
        F: wp.array(dtype=mat),
        alpha: wp.array(dtype=dtype),
        total: wp.array(dtype=mat),
        tracked: int,
        body: wp.array(dtype=wp.int32),
        kind: wp.array(dtype=wp.int32),
        parameter: wp.array2d(dtype=dtype),
        field: wp.array(dtype=wp.int32),
        shape: ivec,
        origin: vec,
        dx: dtype,
        dt: dtype,
        affine: dtype,
        flip: dtype,
        grid_velocity: wp.array2d(dtype=vec),
        grid_before: wp.array2d(dtype=vec),
        counters: wp.array(dtype=wp.int32),
    ):
        p = wp.tid()
        b = body[p]
        X = (x[p] - origin) / dx
        base = base_of(X)
        if not inside(base, shape):
            return
        fx = remainder(X, base)
        w = bspline(fx)
        f = field[b]
        mean = vec()
        change = vec()
        grad = mat()
        for k in range(wp.static(3**dim)):
            o = corner(k)
            i = flat(base, o, shape)
            wi = weight(w, o)
            u = grid_velocity[f, i]
            mean += wi * u
            grad += wp.outer(wi * u, offset_of(o, fx))
        if affine == zero:
            many = int(wp.static(3**dim))
            for k in range(many):
                o = corner(k)
                change += weight(w, o) * grid_before[f, flat(base, o, shape)]
            change = mean - change
        grad = (dtype(4.0) / dx) * grad
        C[p] = grad
        if affine == zero:
            v[p] = flip * (v[p] + change) + (one - flip) * mean
        else:
            v[p] = mean
        moved = x[p] + dt * mean
        x[p] = moved
        if not wp.isfinite(moved) or not wp.isfinite(v[p]):
            counters[BROKEN] = b + 1
            return
        if tracked != 0:
            total[p] = total[p] + dt * grad * total[p]
        G = F[p] + dt * grad * F[p]
        G = clamp_stretch(G, counters)
        if kind[b] == 2:
            G, risen = radial_return(G, alpha[p], parameter[b, 0], parameter[b, 3], parameter[b, 4])
            alpha[p] = risen
        elif kind[b] == 3:
            G, risen = cam_clay(
                G,
                alpha[p],
                parameter[b, 0],
                parameter[b, 2],
                parameter[b, 3],
                parameter[b, 4],
                parameter[b, 5],
                counters,
            )
            alpha[p] = risen
        F[p] = G

    return types.SimpleNamespace(p2g=p2g, update=update, g2p=g2p, vec=vec, mat=mat, ivec=ivec, module=module)
