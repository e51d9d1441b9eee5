"""Warp, upsampling, loss and volumes against the reference; limits and bad input."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.vision.waft import (
    AllPairs,
    FlowUncertainty,
    LocalVolume,
    backward_warp,
    calibrate,
    convex_upsample,
    displacement_report,
    epe,
    fl_all,
    mixture_laplace_nll,
    occlusion_mask,
    px_outlier,
    sequence_loss,
    wauc,
)

from . import reference


def doubles(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_warp_is_the_reference_and_differentiable():
    feat, flow = doubles(1, 2, 4, 5), doubles(1, 2, 4, 5, seed=1, scale=2.0)
    expected = reference.warp(feat[0].numpy(), flow[0].numpy())
    np.testing.assert_allclose(backward_warp(feat, flow)[0], expected, atol=1e-12)
    torch.testing.assert_close(backward_warp(feat, torch.zeros_like(flow)), feat)
    assert torch.autograd.gradcheck(backward_warp, (feat.requires_grad_(), flow.requires_grad_()))


@settings(max_examples=15, deadline=None)
@given(dx=st.integers(-3, 3), dy=st.integers(-3, 3))
def test_whole_shifts_are_exact(dx, dy):
    feat = doubles(1, 1, 7, 8)
    flow = torch.tensor([dx, dy], dtype=torch.float64).view(1, 2, 1, 1).expand(1, 2, 7, 8)
    out = backward_warp(feat, flow)
    rows, columns = slice(max(0, -dy), 7 - max(0, dy)), slice(max(0, -dx), 8 - max(0, dx))
    torch.testing.assert_close(out[..., rows, columns], feat.roll((-dy, -dx), (2, 3))[..., rows, columns])


def test_warp_refuses_what_has_no_coordinates():
    with pytest.raises(ValueError, match="at least 2 rows and 2 columns"):
        backward_warp(torch.zeros(1, 1, 4, 1), torch.zeros(1, 2, 4, 1))
    with pytest.raises(ValueError, match="flow has shape"):
        backward_warp(torch.zeros(1, 1, 4, 4), torch.zeros(1, 2, 4, 5))


@pytest.mark.parametrize("factor", [2, 4])
def test_upsampling_is_the_reference(factor):
    flow, mask = doubles(1, 2, 3, 4), doubles(1, 9 * factor**2, 3, 4, seed=1)
    plain = reference.upsample(flow[0].numpy(), mask[0].view(9, factor, factor, 3, 4).numpy(), factor, factor)
    np.testing.assert_allclose(convex_upsample(flow, mask, factor)[0], plain, atol=1e-12)


def test_a_constant_flow_doubles_inside_and_info_does_not():
    flow, mask = torch.full((1, 2, 5, 5), 1.5), torch.randn(1, 36, 5, 5)
    inside = (..., slice(2, -2), slice(2, -2))
    torch.testing.assert_close(convex_upsample(flow, mask)[inside], torch.full((1, 2, 6, 6), 3.0))
    torch.testing.assert_close(convex_upsample(flow, mask, scale=1)[inside], torch.full((1, 2, 6, 6), 1.5))
    with pytest.raises(ValueError, match="mask has shape"):
        convex_upsample(flow, mask, 4)


def test_loss_is_the_reference_and_its_gradient():
    flow, info, target = doubles(1, 2, 2, 3), doubles(1, 4, 2, 3, seed=1, scale=2), doubles(1, 2, 2, 3, seed=2)
    out = mixture_laplace_nll(flow, info, target)
    for c, i, j in np.ndindex(2, 2, 3):
        expected = reference.nll(flow[0, c, i, j].item(), info[0, :, i, j].numpy(), target[0, c, i, j].item())
        assert out[0, c, i, j].item() == pytest.approx(expected, rel=1e-10)
    shifted = info.clone()
    shifted[:, 2:] = 0.5 + shifted[:, 2:].abs()  # away from the clamp's corner
    assert torch.autograd.gradcheck(
        lambda f, x: mixture_laplace_nll(f, x, target), (flow.requires_grad_(), shifted.requires_grad_())
    )


def test_second_scale_has_no_gradient_and_is_plain_l1():
    info = torch.tensor([-40.0, 40.0, 3.0, -5.0]).view(1, 4, 1, 1).requires_grad_()
    loss = mixture_laplace_nll(torch.zeros(1, 2, 1, 1), info, torch.full((1, 2, 1, 1), 2.5))
    assert loss[0, 0].item() == pytest.approx(2.5 + math.log(2), rel=1e-6)
    loss.sum().backward()
    assert info.grad[0, 3].item() == 0
    with pytest.raises(ValueError, match="var_min"):
        mixture_laplace_nll(torch.zeros(1, 2, 1, 1), info, torch.zeros(1, 2, 1, 1), var_min=1.0)


def test_unknown_truth_gives_no_gradient_and_no_nan():
    flow = torch.zeros(1, 2, 2, 2, requires_grad=True)
    target = torch.ones(1, 2, 2, 2)
    target[..., 0, 0] = math.nan
    info = torch.zeros(1, 4, 2, 2, requires_grad=True)
    loss = sequence_loss([mixture_laplace_nll(flow, info, target)], target)
    loss.backward()
    assert loss.item() == pytest.approx(1 + math.log(2))
    assert flow.grad[..., 0, 0].abs().sum() == 0
    assert torch.isfinite(flow.grad).all()
    assert torch.isfinite(info.grad).all()


def test_loss_weighs_iterations_and_an_empty_batch_is_zero_with_a_graph():
    parts = [torch.full((1, 2, 2, 2), x, requires_grad=True) for x in (1.0, 2.0, 3.0)]
    truth = torch.zeros(1, 2, 2, 2)
    assert sequence_loss(parts, truth, gamma=0.5).item() == pytest.approx(0.25 + 1 + 3)
    nothing = sequence_loss(parts, truth, valid=torch.zeros(1, 2, 2))
    nothing.backward()
    assert nothing.item() == 0
    far = sequence_loss(parts, truth + 50_000)
    assert far.item() == 0
    with pytest.raises(ValueError, match="gamma"):
        sequence_loss(parts, truth, gamma=1.5)


def test_volumes_are_the_reference():
    first, second, flow = doubles(1, 3, 8, 8), doubles(1, 3, 8, 8, seed=1), doubles(1, 2, 8, 8, seed=2, scale=2)
    volume = AllPairs(3, levels=2, radius=1)
    expected = reference.all_pairs(first[0].numpy(), second[0].numpy(), flow[0].numpy(), 2, 1)
    found = volume(volume.prepare(first, second), flow)
    np.testing.assert_allclose(found[0], expected, atol=1e-10)
    local = LocalVolume(3, radius=1)
    torch.testing.assert_close(local(local.prepare(first, second), flow), found[:, :9])  # level 0
    with pytest.raises(ValueError, match="needs sides of 16 or more"):
        AllPairs(3).prepare(first, second)


def test_metrics_by_hand():
    truth = torch.zeros(1, 2, 1, 4)
    truth[0, 0] = torch.tensor([0.0, 10.0, 100.0, math.nan])
    flow = truth.nan_to_num() + torch.tensor([0.5, 4.0, 4.0, 9.0]).view(1, 1, 1, 4) * torch.tensor([1, 0]).view(
        1, 2, 1, 1
    )
    assert epe(flow, truth) == pytest.approx(8.5 / 3)
    assert px_outlier(flow, truth) == pytest.approx(200 / 3)
    assert fl_all(flow, truth) == pytest.approx(100 / 3)  # 4 px of 100 px is within 5 %
    assert wauc(truth, truth) == pytest.approx(100)
    weights = [1 - (i - 1) / 100 for i in range(1, 101)]
    hits = [(i >= 10) / 3 + 2 * (i >= 80) / 3 for i in range(1, 101)]
    assert wauc(flow, truth) == pytest.approx(100 * np.dot(weights, hits) / sum(weights), rel=1e-6)
    assert [row["epe"] for row in displacement_report(flow, truth)] == pytest.approx([0.5, 4.0, 4.0])
    with pytest.raises(ValueError, match="no pixel"):
        epe(flow, truth * math.nan)


def test_occlusion_by_consistency():
    there = torch.zeros(1, 2, 6, 8)
    there[:, 0] = 2.0
    mask = occlusion_mask(there, -there)
    assert mask[0, :, -2:].all()  # leaves the picture
    assert not mask[0, :, :-2].any()
    assert occlusion_mask(there, there)[0, :, :4].all()


def test_the_mixture_is_calibrated_on_its_own_errors_and_calibration_finds_the_factor():
    generator = torch.Generator().manual_seed(0)
    info = torch.randn(1, 4, 80, 80, generator=generator)
    info[:, 2] += 1.5
    known = FlowUncertainty(info)
    pick = (torch.rand(1, 2, 80, 80, generator=generator) > known.weights[:, :1]).long()
    b = torch.where(pick == 0, known.scales[:, :1], known.scales[:, 1:])
    size = -b * torch.log(torch.rand(1, 2, 80, 80, generator=generator).clamp(min=1e-12))
    assert known.calibration_error(size) < 0.02  # 12,800 draws: deviation of a share is below 0.005
    assert size.mean().item() == pytest.approx(known.expected_error.mean().item(), rel=0.05)
    assert calibrate(info, 3 * size) == pytest.approx(3, rel=0.05)
    assert FlowUncertainty(info, scale=calibrate(info, 3 * size)).calibration_error(3 * size) < 0.02
    assert FlowUncertainty(info).calibration_error(3 * size) > 0.1
    q = known.quantile(0.7)
    torch.testing.assert_close(
        1 - (known.weights * torch.exp(-q[:, None] / known.scales)).sum(1), torch.full_like(q, 0.7)
    )
