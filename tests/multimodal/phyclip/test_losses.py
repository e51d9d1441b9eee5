"""The loss against a plain one, its relatives, and its pieces over several processes."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from paperworks.multimodal.phyclip import Cosine, PHyCLIPLoss, ProductHyperbolic

from . import reference, two_ranks

F64 = torch.float64


def batch(n=5, width=12, seed=0):
    return [
        torch.randn(n, width, generator=torch.Generator().manual_seed(seed + i), dtype=F64) for i in range(4)
    ]  # fmt: skip


def space(k=4, d=3):
    made = ProductHyperbolic(k, d).double()
    with torch.no_grad():
        made.log_curv.copy_(torch.linspace(-1, 1, k))
        made.log_gain_text.copy_(torch.linspace(-0.6, -0.1, k))
    return made


def test_the_loss_is_that_of_the_formula():
    s, inputs = space(), batch()
    loss = PHyCLIPLoss(s, radius=0.3)
    points = [s.lift(x, g).tolist() for x, g in zip(inputs, ("image", "text", "image", "text"), strict=True)]
    plain = reference.loss(*points, s.curv.tolist(), float(1 / 0.07), 0.2, 0.7, 1.2, 0.3)
    assert float(loss(*inputs).detach()) == pytest.approx(plain, rel=1e-4)
    parts = loss(*inputs, output_dict=True)
    total = parts["contrastive_loss"] + 0.2 * parts["entailment_loss"]
    assert float(total.detach()) == pytest.approx(plain, rel=1e-4)
    assert parts["entailment_loss"].item() > 0.1


def test_gradients_are_right():
    loss = PHyCLIPLoss(space(2, 3)).double()
    inputs = [x.requires_grad_() for x in batch(3, 6)]
    assert torch.autograd.gradcheck(lambda *a: loss(*a), inputs, atol=1e-4, rtol=1e-3)


def test_every_parameter_of_loss_and_space_is_learned():
    loss = PHyCLIPLoss(space())
    loss(*batch()).backward()
    for name, parameter in loss.named_parameters():
        assert parameter.grad.abs().sum() > 0, name


def test_the_scale_is_at_most_100():
    loss = PHyCLIPLoss(space(), temperature=0.07)
    assert loss.scale.item() == pytest.approx(1 / 0.07)
    with torch.no_grad():
        loss.log_scale.fill_(9.0)
    assert loss.scale.item() == 100


def test_without_boxes_a_warning_is_given_once_and_their_terms_are_left_out():
    image, text, _, _ = batch()
    s = space()
    loss = PHyCLIPLoss(s)
    with pytest.warns(UserWarning, match="no boxes were given"):
        got = loss(image, text, output_dict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(image, text)
        meru = PHyCLIPLoss(s, boxes=False)
        assert meru(*batch()).item() == meru(image, text).item() == got["loss"].item()
    x, y = s.lift(image, "image"), s.lift(text, "text")
    logits = loss.scale * s.similarity(x, y)
    own = torch.arange(5)
    ce = torch.nn.functional.cross_entropy
    assert got["contrastive_loss"].item() == pytest.approx(((ce(logits, own) + ce(logits.mT, own)) / 2).item())
    assert got["entailment_loss"].item() == pytest.approx(s.entailment(y, x, 0.7).mean().item())


def test_the_general_is_the_apex():
    """A caption near the origin entails its picture behind it, not the other way round."""
    s = ProductHyperbolic(1, 2)
    loss = PHyCLIPLoss(s, boxes=False, eta_inter=1.0)
    near, far = torch.tensor([[0.6, 0.0]]), torch.tensor([[3.0, 0.0]])
    assert loss(far, near, output_dict=True)["entailment_loss"].item() == 0
    assert loss(near, far, output_dict=True)["entailment_loss"].item() > 1


def test_clip_is_the_loss_of_open_clip():
    image, text, _, _ = batch()
    got = PHyCLIPLoss(Cosine(12), entail_weight=0, boxes=False)(image, text)
    x, y = (torch.nn.functional.normalize(v, dim=-1) for v in (image, text))
    logits = x @ y.mT / 0.07
    own = torch.arange(5)
    ce = torch.nn.functional.cross_entropy
    torch.testing.assert_close(got, (ce(logits, own) + ce(logits.mT, own)) / 2, rtol=1e-5, atol=1e-6)


def test_two_processes_see_each_others_candidates(tmp_path):
    script = Path(two_ranks.__file__)
    outs = [tmp_path / f"{rank}.pt" for rank in range(2)]
    commands = [
        [sys.executable, str(script), str(rank), str(tmp_path / "meeting"), str(out)] for rank, out in enumerate(outs)
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # as this process finds the package
    for process in [subprocess.Popen(command, env=environment) for command in commands]:
        assert process.wait(120) == 0
    found = [torch.load(out, weights_only=True) for out in outs]
    inputs = [x.requires_grad_() for x in two_ranks.inputs()]
    whole = PHyCLIPLoss(ProductHyperbolic(4, 3).double())(*inputs)
    whole.backward()
    torch.testing.assert_close((found[0][0] + found[1][0]) / 2, whole.detach())
    for x, *halves in zip(inputs, found[0][1:], found[1][1:], strict=True):
        torch.testing.assert_close(torch.cat(halves), x.grad)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PHyCLIPLoss(space(), temperature=0), "temperature = 0: a number above 0"),
        (lambda: PHyCLIPLoss(space(), radius=-1), "radius = -1"),
        (lambda: PHyCLIPLoss(space(), entail_weight=-0.1), "entail_weight = -0.1"),
        (lambda: PHyCLIPLoss(space())(*batch()[:3]), "box_image and box_text belong together"),
        (lambda: PHyCLIPLoss(space())(batch()[0], batch(4)[1]), "text has 4 rows, image 5"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
