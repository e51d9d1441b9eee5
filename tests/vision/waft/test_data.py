"""Generated pairs, files, colours, classical peers, a training."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from paperworks.vision.waft import (
    CLASSICAL,
    WAFT,
    MotionModel,
    SyntheticFlowDataset,
    colour_wheel,
    fit,
    flow_to_image,
    make_pair,
    read_flo,
    read_kitti_png,
    write_flo,
    write_kitti_png,
)

SMALL = {"side_widths": (8, 12, 16), "side_blocks": 1, "side_channels": 16}
STILL = MotionModel(gamma=0.0, noise=0.0)


def photographs():
    """Smooth coloured textures; the study has real ones."""
    import cv2  # here: it must not be in the process of other papers' tests

    rng = np.random.default_rng(0)
    return [cv2.resize(rng.integers(0, 256, (20, 24, 3), dtype=np.uint8), (240, 200)) for _ in range(3)]


@pytest.mark.parametrize("motion", ["translation", "affine", "homography", "affine+smooth", "affine+smooth+layers"])
def test_warping_frame_2_by_the_flow_gives_frame_1(motion):
    import cv2  # here: it must not be in the process of other papers' tests

    for seed in range(3):
        pair = make_pair(photographs(), (96, 112), motion, np.random.default_rng(seed), STILL)
        grid = np.stack(np.meshgrid(np.arange(112), np.arange(96)), -1).astype(np.float32)
        at = (grid + pair.flow).astype(np.float32)
        back = cv2.remap(pair.image2, at[..., 0], at[..., 1], cv2.INTER_LINEAR).astype(float)
        gap = np.abs(back - pair.image1).mean(-1)
        still = np.abs(pair.image2.astype(float) - pair.image1).mean(-1)
        assert gap[~pair.occluded].mean() < 4
        assert gap[~pair.occluded].mean() < 0.5 * still[~pair.occluded].mean()
        assert 0 < pair.occluded.mean() < 0.5


def test_displacements_have_a_tail_and_pairs_depend_on_seed_and_index_alone():
    data = SyntheticFlowDataset(photographs(), "affine+smooth+layers", 128, seed=5, length=40)
    lengths = np.concatenate([np.linalg.norm(data.pair(i).flow, axis=-1).ravel() for i in range(16)])
    assert 3 < np.median(lengths) < 7
    assert 12 < np.quantile(lengths, 0.95) < 30
    again = SyntheticFlowDataset(photographs(), "affine+smooth+layers", 128, seed=5)
    np.testing.assert_array_equal(data[7]["image2"], again[7]["image2"])
    assert not np.array_equal(data[7]["flow"], data[8]["flow"])
    with pytest.raises(ValueError, match="motion='spin'"):
        SyntheticFlowDataset(photographs(), "spin")
    with pytest.raises(IndexError, match="index=40"):
        data[40]


def test_translation_is_constant_and_repeated_objects_look_alike():
    pair = make_pair(photographs(), (64, 64), "translation", np.random.default_rng(1), STILL)
    np.testing.assert_allclose(pair.flow - pair.flow[0, 0], 0, atol=1e-4)
    assert (
        make_pair(photographs(), (64, 64), "translation+layers", np.random.default_rng(1), repeat=True).flow.std() > 0
    )


def test_flo_and_kitti_files(tmp_path):
    flow = np.random.default_rng(0).normal(0, 30, (5, 7, 2)).astype(np.float32)
    flow[2, 3] = np.nan
    write_flo(tmp_path / "a.flo", flow)
    np.testing.assert_array_equal(read_flo(tmp_path / "a.flo"), flow)
    assert (tmp_path / "a.flo").read_bytes()[:12] == b"PIEH" + np.array([7, 5], "<i4").tobytes()
    write_kitti_png(tmp_path / "a.png", flow)
    back, valid = read_kitti_png(tmp_path / "a.png")
    assert not valid[2, 3]
    assert valid.sum() == 34
    np.testing.assert_allclose(back[valid], flow[valid], atol=1 / 128)
    (tmp_path / "bad.flo").write_bytes(b"PIEH" + np.array([700, 500], "<i4").tobytes())
    with pytest.raises(ValueError, match="not enough for a flow of 700x500"):
        read_flo(tmp_path / "bad.flo")
    with pytest.raises(ValueError, match=r"is no \.flo file"):
        read_flo(tmp_path / "a.png")


def test_opencv_reads_and_writes_the_same_flo(tmp_path):
    import cv2  # here: it must not be in the process of other papers' tests

    flow = np.random.default_rng(0).normal(0, 30, (5, 7, 2)).astype(np.float32)
    write_flo(tmp_path / "a.flo", flow)
    np.testing.assert_array_equal(cv2.readOpticalFlow(str(tmp_path / "a.flo")), flow)


def test_colours():
    wheel = colour_wheel()
    assert wheel.shape == (55, 3)
    np.testing.assert_allclose(
        wheel[[0, 15, 21, 25, 36, 49]] / 255,
        np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1]]),
    )
    flow = np.zeros((1, 3, 2))
    flow[0, 1], flow[0, 2] = [5, 0], [np.nan, 0]
    image = flow_to_image(flow)
    assert image[0, 0].tolist() == [255, 255, 255]
    assert image[0, 1].argmax() == 0  # to the right is red
    assert image[0, 2].tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["dis", "farneback", "tvl1", "ilk"])
def test_classical_peers_find_a_small_shift(name):
    import cv2  # here: it must not be in the process of other papers' tests

    image = cv2.resize(np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8), (96, 96))
    flow = CLASSICAL[name](image, np.roll(image, (1, 2), (0, 1)))
    assert np.median(np.abs(flow[16:-16, 16:-16] - (2, 1))) < 0.5


def test_training_fits_one_batch():
    torch.manual_seed(0)
    data = SyntheticFlowDataset(photographs(), "translation", 32, length=1)
    model = WAFT(None, "vit_micro", 2, **SMALL)
    losses = fit(model, data.batches(1, 20), 20, rate=2e-3)
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])
    assert all(math.isfinite(x) for x in losses)


def test_training_pairs_are_made_without_opencv():
    """In a process with torch, OpenCV 5 makes oneDNN's backward passes crash."""
    script = (
        "import sys, numpy as np; from paperworks.vision.waft import SyntheticFlowDataset\n"
        "photo = np.random.default_rng(0).integers(0, 256, (80, 90, 3), dtype=np.uint8)\n"
        "SyntheticFlowDataset([photo], 'homography+smooth+layers', 32)[0]\n"
        "assert 'cv2' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
