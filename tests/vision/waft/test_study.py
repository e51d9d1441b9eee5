"""The parts of the study: counts, derived metrics, the real pair, what is held out."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from paperworks.claims.study import Cell, Trial
from paperworks.vision.waft import WAFT, study
from paperworks.vision.waft.derive import memory, memory_video

SMALL = {"side_widths": (8, 12, 16), "side_blocks": 1, "side_channels": 16}


def trial(experiment, arm, level, **changes):
    config = experiment.config["smoke"].model_copy(update=changes)
    return Trial(
        origin=("waft", experiment.name, 1),
        cells=(Cell(arm, level, 100),),
        scale="smoke",
        config=config,
        arms=experiment.arms,
    )


def test_the_real_pair_agrees_with_its_truth():
    import cv2  # here: it must not be in the process of other papers' tests

    left, right, flow, inside = study._motorcycle(trial(study.classical, "zero", {}), (160, 240))
    known = np.isfinite(flow).all(-1) & inside
    grid = np.stack(np.meshgrid(np.arange(240), np.arange(160)), -1).astype(np.float32)
    gaps = {}
    for sign in (1, -1):
        at = (grid + sign * np.nan_to_num(flow)).astype(np.float32)
        back = cv2.remap(right, at[..., 0], at[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        gaps[sign] = np.median(np.abs(back.astype(float) - left).mean(-1)[known])
    assert gaps[1] < 0.5 * gaps[-1]
    assert gaps[1] < 15  # the two cameras differ in exposure


def test_the_truth_of_the_real_pair_lies_on_the_pixels_of_the_pictures():
    """A half-size pixel is the mean of four, in the pictures and in the disparity."""
    real = study.load_motorcycle()
    rows, columns = real.disparity.shape[0] // 2, real.disparity.shape[1] // 2
    left, _, flow, seen = study._motorcycle(trial(study.classical, "zero", {}), (rows, columns))
    y, x = np.argwhere(np.isfinite(flow[..., 0]) & seen)[1000]
    block = real.disparity[2 * y : 2 * y + 2, 2 * x : 2 * x + 2]
    assert flow[y, x, 0] == pytest.approx(-block.mean() / 2)
    assert np.ptp(block) > 0
    np.testing.assert_array_equal(left[y, x], np.rint(real.left[2 * y : 2 * y + 2, 2 * x : 2 * x + 2].mean((0, 1))))
    assert 0.7 < seen.mean() < 0.97  # what is behind something nearer, or out of view, is not seen


def test_what_a_nearer_pixel_covers_is_not_seen():
    #                          falls on: -1   0    -    2    0    4   2   7
    disparity = np.array([[1.0, 1.0, np.nan, 1.0, 4.0, 1.0, 4.4, 0.0]], np.float32)
    assert study._seen(disparity).tolist() == [[False, False, False, False, True, True, True, True]]
    assert study._seen(disparity[:, :4]).tolist() == [[False, True, False, True]]


@pytest.mark.slow  # the first use of tensors without values loads much of torch
def test_counting_without_computing_is_counting():
    def count():
        torch.manual_seed(0)
        model = WAFT(None, "convgru", 1, dim=8, **SMALL).train()
        return study.kept_bytes(model, *torch.zeros(2, 1, 3, 32, 32))

    with FakeTensorMode():
        fake = count()
    assert fake == pytest.approx(count(), rel=0.02)  # scalars that a kernel keeps may differ


def test_derived_metrics():
    rows = [
        {"arm": "warp", "stride": 2, "side": s, "metric": m, "value": v, "seed": 0}
        for s, p in ((128, 100.0), (256, 400.0))
        for m, v in (("pixels", p), ("train_mib", 3 * p**1.5))
    ]
    (row,) = memory(pd.DataFrame(rows), 0).itertuples()
    assert row.value == pytest.approx(1.5)
    table = pd.DataFrame(
        [("warp", 2, 4.0), ("warp", 4, 2.0), ("all_pairs", 2, 99.0), ("all_pairs", 4, 16.0)],
        columns=["arm", "stride", "value"],
    ).assign(metric="train_gib", seed=0)
    (row,) = memory_video(table, 0).itertuples()
    assert (row.arm, row.metric, row.value) == ("warp", "saving", pytest.approx(2.0))
    assert memory_video(table[table.arm == "warp"], 0).empty


def test_test_photographs_are_held_out():
    train, test = (study._dataset(flag, "affine", 64, 0) for flag in (False, True))
    assert len(test.images) == 3
    assert not any(np.array_equal(a, b) for a in train.images for b in test.images)


@pytest.mark.slow
@pytest.mark.parametrize(("indexing", "paper"), [("warp", 858), ("image_warp", 1902)])
def test_operations_at_540p_are_the_papers(indexing, paper):
    with FakeTensorMode(), torch.no_grad(), FlopCounterMode(display=False) as counter:
        model = study._body(indexing, study.Video()).eval()
        model(*torch.zeros(2, 1, 3, 540, 960))
    assert counter.get_total_flops() / 2e9 == pytest.approx(paper, rel=0.02)  # attention is counted by us alone
