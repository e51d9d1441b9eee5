"""The parts of the study that a verdict leans on: derived metrics, shared batches, the grid, what is held out."""

import numpy as np
import pandas as pd
import pytest
import torch

from paperworks.claims.study import Cell, Preparation, Trial
from paperworks.training.wsm import corpus, study
from paperworks.training.wsm.derive import branches, grid
from paperworks.training.wsm.weights import merge_weights


def test_gain_is_against_the_newest_state_at_constant_rate():
    losses = {"constant": 2.0, "merge_mean": 1.9, "decay_linear": 1.85}
    table = pd.DataFrame([{"arm": a, "metric": "loss", "value": v, "seed": 3} for a, v in losses.items()])
    found = {r.arm: r.value for r in branches(table, 3).itertuples()}
    assert found == {"merge_mean": pytest.approx(0.1), "decay_linear": pytest.approx(0.15)}
    assert branches(table[table.arm != "constant"], 3).empty


def test_lead_is_one_when_only_the_window_matters_and_minus_one_when_only_the_number_does():
    def table(loss):
        rows = [(w, c, loss(i, j)) for i, w in enumerate("abc") for j, c in enumerate((2, 4, 8))]
        return pd.DataFrame(
            [{"arm": "m", "window": w, "count": c, "metric": "loss", "value": v, "seed": 0} for w, c, v in rows]
        )

    assert grid(table(lambda i, j: i), 0).value.item() == pytest.approx(1)
    assert grid(table(lambda i, j: j), 0).value.item() == pytest.approx(-1)
    assert grid(table(lambda i, j: i + j), 0).value.item() == pytest.approx(0)
    assert grid(table(lambda i, j: i).iloc[1:], 0).empty


def test_the_grid_takes_states_at_equal_distances_that_end_with_the_newest():
    states = [{"w": torch.tensor([float(step)])} for step in range(5, 205, 5)]
    steps = list(range(605, 805, 5))
    got = study.merged(states, steps, window=160, count=2)
    assert float(got["w"]) == (120 + 200) / 2
    got = study.merged(states, steps, curve="1-sqrt", window=40, count=8)
    assert float(got["w"]) == pytest.approx(float(merge_weights("1-sqrt", 7) @ np.arange(165, 205, 5)))
    assert float(study.merged(states, steps)["w"]) == pytest.approx(np.mean(range(5, 205, 5)))


@pytest.fixture(scope="module")
def trunk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trunk")
    study.trunk.function(Preparation(folder, study.SMOKE, 100, ("wsm", "trunk")))
    return folder


def trial(experiment, arm, folder, factory=None):
    arms = {**experiment.arms, **({arm: factory} if factory else {})}
    return Trial(
        origin=("wsm", experiment.name, 1), cells=(Cell(arm, {}, 100),), scale="smoke", config=study.SMOKE, arms=arms,
        prepared=lambda name, seed: folder,
    )  # fmt: skip


def loss(arm, folder, factory=None):
    return study.branches.function(trial(study.branches, arm, folder, factory)).metrics["loss"]


def test_a_decay_that_stays_at_the_peak_is_the_constant_branch(trunk):
    """The same batches, the same optimiser state: bit for bit."""
    flat = study.Finish(decay=lambda x: 1.0)
    assert loss("mine", trunk, lambda: flat) == loss("constant", trunk)
    assert loss("decay_linear", trunk) != loss("constant", trunk)
    own = study.Finish(optimiser=study.adamw)
    assert loss("mine", trunk, lambda: own) == loss("constant", trunk)
    own = study.Finish(optimiser=study.adamw, decay=lambda x: 1.0)
    assert loss("mine", trunk, lambda: own) == loss("constant", trunk)


def test_a_full_cosine_falls_from_the_end_of_the_warm_up(trunk, monkeypatch):
    rates = []
    step = torch.optim.AdamW.step

    def spy(self, closure=None):
        rates.append(self.param_groups[0]["lr"])
        return step(self, closure)

    monkeypatch.setattr(torch.optim.AdamW, "step", spy)
    loss("full_cosine", trunk)
    c = study.SMOKE
    assert len(rates) == c.warmup + c.stable + c.last
    x = np.arange(1, c.stable + c.last + 1) / (c.stable + c.last + 1)
    ramp = np.arange(1, c.warmup + 1) / c.warmup
    np.testing.assert_allclose(rates, c.lr * np.concatenate([ramp, (1 + np.cos(np.pi * x)) / 2]), rtol=1e-9)


def test_a_merge_of_the_newest_alone_is_the_constant_branch(trunk):
    newest = study.Finish(merge=lambda states, steps: study.merged(states, steps, curve="constant"))
    assert loss("mine", trunk, lambda: newest) == pytest.approx(loss("constant", trunk), abs=1e-9)


def test_corpora_are_real_split_by_pieces_and_long_enough(tmp_path):
    train, held_out = corpus.python_bytes()
    assert len(train) > 5_000_000
    assert len(held_out) > 65_536
    assert b"import" in train[:100_000].tobytes()
    (tmp_path / "data.noun").write_bytes(
        b"  1 licence | none\n" + b"".join(b"0%d 03 n 01 word 0 000 | gloss %d  \n" % (i, i) for i in range(40))
    )
    train, held_out = corpus.gloss_bytes(tmp_path)
    assert held_out.tobytes() == b"gloss 0\ngloss 20\n"
    assert train.tobytes().startswith(b"gloss 1\ngloss 2\n")
    assert b"licence" not in train.tobytes()


def test_questions_are_scored_at_the_answer_alone(tmp_path):
    line = b"0%d 03 n 01 big_dog 0 000 | gloss %d  \n"
    (tmp_path / "data.noun").write_bytes(b"  1 licence | none\n" + b"".join(line % (i, i) for i in range(40)))
    train, labels, test, test_labels = corpus.word_questions(tmp_path, 20)
    assert (len(train), len(test)) == (38, 2)
    assert bytes(train[0].tolist()) == b"big dog: gloss 1\n\0\0\0"
    assert bytes(v for v in labels[0].tolist() if v >= 0) == b"gloss 1\n"
    assert labels[0, :9].tolist() == [-100] * 9
    assert labels[0, -3:].tolist() == [-100] * 3
    assert bytes(test[1].tolist()) == b"big dog: gloss 20\n\0\0"
    assert bytes(v for v in test_labels[1].tolist() if v >= 0) == b"gloss 20\n"
    assert len(corpus.word_questions(tmp_path, 17)[0]) == 0  # the question takes more than half


def test_each_seed_holds_out_other_bytes_and_trains_on_none_of_them():
    a, b, again = (study._Data("python", study.SMOKE, 0, held).validation for held in (1, 2, 1))
    assert a.shape == (32, 16)
    assert torch.equal(a, again)
    assert not torch.equal(a, b)
    held_out = study._corpus("python")[1].tobytes()
    assert all(bytes(row.tolist()) in held_out for row in a)


def test_fine_tuning_learns_and_its_loss_is_that_of_answers(monkeypatch):
    text = torch.randint(97, 123, (64, 16), generator=torch.Generator().manual_seed(0))
    text[:, 8:] = 120
    labels = text.masked_fill(torch.arange(16) < 8, -100)
    monkeypatch.setattr(study, "_questions", lambda length: (text, labels, text[:8], labels[:8]))
    torch.manual_seed(0)
    model = study._model(study.SMOKE)
    c = study.SMOKE.model_copy(update={"tuning": 60, "tuning_lr": 0.01, "questions": 8})
    before, after = study._fine_tune(model, c, 0)
    assert before > 4
    assert after < 0.5  # letters of the questions cannot be guessed: a loss on them would stay above 3
    untouched = study._model(c)
    assert study._fine_tune(untouched, c.model_copy(update={"tuning": 0}), 0)[0] == pytest.approx(
        study._fine_tune(untouched, c.model_copy(update={"tuning": 0}), 0)[1]
    )
