"""The frozen encoder is the real one, and stays frozen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from paperworks.kit.assets import load_photographs, status

pytest.importorskip("efficientnet_lite_pytorch")
MISSING = [name for name in ("efficientnet_lite0", "photographs", "china_flower") if status(name).state == "missing"]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: paperworks data {' '.join(MISSING)}")


@pytest.fixture(scope="module")
def network():
    from paperworks.kit.nets import efficientnet_lite0

    return efficientnet_lite0()


def _picture(name: str, size: int = 224) -> torch.Tensor:
    picture = torch.from_numpy(load_photographs()[name]).permute(2, 0, 1)[None].float()
    return torch.nn.functional.interpolate(picture, size=(size, size), mode="bilinear", antialias=True)


@pytest.mark.parametrize(("name", "imagenet"), [("flower", 985), ("astronaut", None)])
def test_it_knows_what_it_sees(network, name: str, imagenet: int | None) -> None:
    best = network(_picture(name)).argmax().item()
    assert (best == imagenet) == (imagenet is not None)  # 985: daisy


def test_the_maps_of_all_strides_are_those_of_the_network(network) -> None:
    picture = _picture("flower", 96)
    maps = network.stages(picture)
    assert [tuple(m.shape) for m in maps] == [
        (1, 16, 48, 48), (1, 24, 24, 24), (1, 40, 12, 12), (1, 112, 6, 6), (1, 320, 3, 3)
    ]  # fmt: skip
    assert torch.allclose(network(picture), network.network((picture - 127) / 128), atol=1e-4)


def test_it_stays_frozen_inside_a_model_that_trains(network) -> None:
    model = torch.nn.Sequential(network, torch.nn.Linear(1000, 2)).train()
    assert model.training
    assert not any(module.training for module in network.modules())
    assert not any(parameter.requires_grad for parameter in network.parameters())
    before = network(_picture("flower", 64))
    model(_picture("astronaut", 64)).sum().backward()
    assert torch.equal(before, network(_picture("flower", 64)))


def test_gradients_reach_the_picture(network) -> None:
    picture = _picture("flower", 64).requires_grad_()
    network.pooled(picture).sum().backward()
    assert picture.grad.abs().sum() > 0


@pytest.mark.parametrize("shape", [(3, 64, 64), (1, 1, 64, 64), (1, 3, 31, 64)])
def test_pictures_of_another_shape_are_refused(network, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"images have shape .*; expected \(batch, 3, height, width\) from 32x32"):
        network.stages(torch.zeros(shape))


def test_features_are_looked_up_the_second_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from paperworks.kit.nets import efficientnet, image_features

    weights = efficientnet.efficientnet_lite0()
    monkeypatch.setenv("PAPERWORKS_CACHE", str(tmp_path))
    monkeypatch.setattr(efficientnet, "_network", lambda: weights)
    pictures = np.stack([load_photographs()[name][:64, :64] for name in ("china", "flower", "coffee")])
    first = image_features(pictures, size=64)
    assert first.shape == (3, 1280)
    plain = weights.pooled(torch.from_numpy(pictures).permute(0, 3, 1, 2).float())
    np.testing.assert_allclose(first, plain.numpy(), rtol=1e-4, atol=1e-5)

    def never() -> None:
        raise AssertionError("it was encoded already")

    monkeypatch.setattr(efficientnet, "_network", never)
    np.testing.assert_array_equal(image_features(pictures[::-1].copy(), size=64), first[::-1])
    with pytest.raises(AssertionError):
        image_features(pictures[:, :32, :32], size=64)  # another picture, although a part of the first
    with pytest.raises(ValueError, match=r"images are float64 of shape \(1, 8, 8, 3\); expected uint8"):
        image_features(np.zeros((1, 8, 8, 3)))
