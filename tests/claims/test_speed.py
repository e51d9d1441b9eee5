"""Ours and a peer: outputs are compared first, and only ratios are told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Desk
from paperworks.claims import speed
from paperworks.claims.errors import PaperError
from paperworks.claims.speed import Pair


def test_a_callable_twice_as_slow_has_a_ratio_near_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of our own, on which a call takes its time give or take a tenth; the machine's load plays no part."""
    clock, noise = [0.0], np.random.default_rng(0)

    def takes(seconds: float) -> Callable[[], Any]:
        def call() -> Any:
            clock[0] += seconds * noise.uniform(0.9, 1.1)
            return np.ones(3)

        return call

    monkeypatch.setattr(speed.time, "perf_counter", lambda: clock[0])
    found = speed.measure(Pair(takes(0.004), takes(0.002)), "wait", "itself", 1.5, seconds=0.6)
    assert 1.95 < found.median < 2.05
    assert 1.9 < found.low <= found.median <= found.high < 2.1
    assert 90 < found.pairs < 110
    assert found.ours == pytest.approx(0.004, rel=0.05)
    assert not found.met
    assert found.to_dict()["met"] is False


def noisy(seed: int, seconds: float, monkeypatch: pytest.MonkeyPatch) -> speed.Ratio:
    """A measurement of two callables whose times are exponential with mean 1, by a clock of our own."""
    ticks = iter(np.cumsum(np.random.default_rng(seed).exponential(size=6000)))
    monkeypatch.setattr(speed.time, "perf_counter", lambda: float(next(ticks)))
    return speed.measure(Pair(lambda: 1.0, lambda: 1.0), "noise", "itself", 1.0, seconds=seconds)


def test_the_interval_covers_the_median_ratio_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, least in ((0.0, 6), (100.0, 12), (400.0, 60)):
        found = [noisy(seed, seconds, monkeypatch) for seed in range(200)]
        assert all(ratio.low <= ratio.median <= ratio.high and ratio.pairs >= least for ratio in found)
        assert np.mean([ratio.low <= 1.0 <= ratio.high for ratio in found]) >= 0.92
    widths = [np.mean([r.high - r.low for r in (noisy(s, t, monkeypatch) for s in range(50))]) for t in (100.0, 900.0)]
    assert widths[1] < 0.6 * widths[0]
    assert noisy(0, 1e9, monkeypatch).pairs == 999


def test_what_differs_is_reported_and_nothing_is_timed() -> None:
    calls = []
    pair = Pair(lambda: calls.append(1) or np.array([1.0, 2.0]), lambda: np.array([1.0, 2.5]))
    with pytest.raises(
        PaperError, match=r"speed 'f': output 0: differs from the peer's by up to 0\.5; nothing was timed"
    ):
        speed.measure(pair, "f", "peer", 1.0)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("ours", "peer", "says"),
    [
        ((1.0, 2.0), (1.0,), "ours returns 2 arrays, the peer 1"),
        (np.ones((2, 3)), np.ones((3, 2)), r"output 0: shape (2, 3) against the peer's (3, 2)"),
        ((np.ones(2), [np.ones(2)]), (np.ones(2), [np.zeros(2)]), "output 1: differs from the peer's by up to 1"),
        (np.array([1.0, np.nan]), np.array([1.0, 1.0]), "output 0: differs"),
        (np.array([1 + 1j]), np.array([1 + 2j]), "output 0: differs from the peer's by up to 1"),
        (1.0, 1.0 + 1e-4, "output 0: differs"),
        (1.0, 1.0 + 1e-6, ""),
        (np.array([True, False]), np.array([1, 0]), ""),
        (np.zeros((0, 3)), np.zeros((0, 3)), ""),
    ],
)
def test_difference(ours: Any, peer: Any, says: str) -> None:
    found = speed.difference(Pair(lambda: ours, lambda: peer))
    assert says in found if says else found == ""


def test_tensors_of_any_kind_are_compared() -> None:
    torch = pytest.importorskip("torch")
    half = torch.tensor([1.0, 2.0], dtype=torch.bfloat16, requires_grad=True)
    assert speed.difference(Pair(lambda: half, lambda: np.array([1.0, 2.0]))) == ""
    assert "differs" in speed.difference(Pair(lambda: torch.tensor([1j]), lambda: torch.tensor([2j])))


def test_tolerances_are_the_pairs_own() -> None:
    assert "differs" in speed.difference(Pair(lambda: 1.0, lambda: 1.01, rtol=1e-3))
    assert speed.difference(Pair(lambda: 1.0, lambda: 1.01, rtol=1e-1)) == ""


def test_pairs_of_a_room(make_toy: Callable[..., Desk]) -> None:
    make_toy(speed="import no_such_peer\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_peer"):
        speed.pair_of("toy_papers.toy", "f", "small")


def test_a_pair_that_is_not_there(make_toy: Callable[..., Desk]) -> None:
    code = "from paperworks.claims.speed import Pair\ndef f(size):\n    return Pair(lambda: size, lambda: size)\n"
    make_toy(speed=code)
    assert speed.pair_of("toy_papers.toy", "f", "small").ours() == "small"
    with pytest.raises(PaperError, match=r"toy_papers\.toy\.speed has no function 'g'"):
        speed.pair_of("toy_papers.toy", "g", "small")


def test_saved_ratios_are_read_again(tmp_path: Path) -> None:
    assert speed.saved(tmp_path) == []
    ratio = speed.Ratio("f", "peer", 1.15, 1.23456, 1.1, 1.3, 20, 0.0123456)
    speed.save(tmp_path, [ratio])
    assert speed.saved(tmp_path) == [speed.Ratio("f", "peer", 1.15, 1.235, 1.1, 1.3, 20, 0.01235)]
    assert [p.name for p in tmp_path.iterdir()] == ["speed.json"]


MEMORY = """
import numpy as np
from paperworks.claims.speed import Pair


def f(size):
    n = {"small": 10, "full": 4_000_000}[size]
    return Pair(lambda: np.ones(n).sum(), lambda: np.stack([np.ones(n), np.ones(n)]).sum())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of one call")
def test_peak_memory_is_that_of_one_call(make_toy: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    """An array of 30.5 MiB against two and their copies; neither hides in what the other left."""
    desk = make_toy(speed=MEMORY)
    monkeypatch.setenv("PYTHONPATH", str(desk.plugins))
    ours, peer = (speed.peak_memory("toy_papers.toy", "f", side) for side in ("ours", "peer"))
    assert ours == pytest.approx(30.5, abs=4)
    assert peer == pytest.approx(122.1, abs=4)
    assert speed.peak_memory("toy_papers.toy", "g", "ours") is None
