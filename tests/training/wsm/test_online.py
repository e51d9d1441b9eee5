"""Merging while training: what is kept, what is put back bit by bit, and the contract of torch and transformers."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, update_bn
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from paperworks.kit.lm import TinyGPT, TinyGPTConfig
from paperworks.training.wsm import (
    CheckpointMerger,
    HierarchicalMerger,
    WSMAveragedModel,
    WSMCallback,
    checkpoints_in,
    merge_checkpoints,
    merge_weights,
)


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))


def training(model, steps, seed=0):
    """Yield after each step of AdamW."""
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(1, steps + 1):
        x = torch.randn(16, 4, generator=generator)
        optimiser.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimiser.step()
        yield step


def assert_same(a, b, exact=False):
    assert list(a) == list(b)
    for name in a:
        torch.testing.assert_close(a[name], b[name], **({"rtol": 0, "atol": 0} if exact else {}))


@pytest.mark.parametrize("curve", ["linear", "1-sqrt"])
def test_the_window_holds_the_last_states(curve):
    model = network()
    merger = CheckpointMerger(curve, window=12, interval=4)
    kept = []
    for step in training(model, 30):
        assert merger.update(step, model) == (step % 4 == 0)
        if step % 4 == 0:
            kept.append(copy.deepcopy(model.state_dict()))
    assert merger.steps == [20, 24, 28]
    wanted = merge_checkpoints(kept[-3:], merge_weights(curve, 2))
    assert_same(merger.merged_state_dict(), wanted)
    assert_same(merger.merged_state_dict("ema", alpha=0.5), merge_checkpoints(kept[-3:], curve="ema", alpha=0.5))
    assert merger.bytes == 3 * sum(v.numel() * v.element_size() for v in model.state_dict().values())


def test_fewer_states_than_the_window_are_a_shorter_window():
    model = network()
    merger = CheckpointMerger("linear", window=100, interval=2)
    with pytest.raises(RuntimeError, match="no state is kept yet"):
        merger.merged_state_dict()
    for step in training(model, 2):
        merger.update(step, model)
    assert_same(merger.merged_state_dict(), model.state_dict(), exact=True)


def test_every_bit_is_put_back_even_when_evaluation_fails():
    model = network()
    merger = CheckpointMerger("linear", window=4, interval=1)
    for step in training(model, 6):
        merger.update(step, model)
    before = copy.deepcopy(model.state_dict())
    with merger.apply_to(model) as merged:
        assert merged is model
        assert not torch.equal(model[0].weight, before["0.weight"])
    assert_same(model.state_dict(), before, exact=True)

    def evaluation_fails():
        with merger.apply_to(model):
            raise RuntimeError("evaluation")

    with pytest.raises(RuntimeError, match="evaluation"):
        evaluation_fails()
    assert_same(model.state_dict(), before, exact=True)


def test_training_is_not_touched_by_evaluating_merges():
    def run(evaluate):
        model = network()
        merger = CheckpointMerger("1-sqrt", window=4, interval=1)
        for step in training(model, 8):
            merger.update(step, model)
            if evaluate:
                with merger.apply_to(model):
                    model.eval()
                    model(torch.zeros(2, 4))
                    model.train()
        return model.state_dict()

    assert_same(run(True), run(False), exact=True)


def test_a_merger_goes_on_after_a_restart():
    model = network()
    merger, again = CheckpointMerger(window=4, interval=1), CheckpointMerger(window=4, interval=1)
    for step in training(model, 6):
        if step == 4:
            again.load_state_dict(copy.deepcopy(merger.state_dict()))
        merger.update(step, model)
        if step >= 4:
            again.update(step, model)
    assert again.steps == merger.steps
    assert_same(again.merged_state_dict(), merger.merged_state_dict(), exact=True)
    with pytest.raises(ValueError, match="window = 4 in the state, 8 here"):
        CheckpointMerger(window=8, interval=1).load_state_dict(merger.state_dict())


def test_the_merge_of_half_precision_states_is_not_rounded():
    model = nn.Linear(64, 1, bias=False)
    merger = CheckpointMerger(window=2, interval=1, dtype=torch.bfloat16)
    parts = []
    for step in (1, 2):
        nn.init.normal_(model.weight)
        merger.update(step, model)
        parts.append(model.weight.detach().bfloat16().float())
    again = CheckpointMerger(window=2, interval=1, dtype=torch.bfloat16)
    again.load_state_dict(merger.state_dict())
    for one in (merger, again):
        weight = one.merged_state_dict()["weight"]
        assert weight.dtype == torch.float32
        torch.testing.assert_close(weight, (parts[0] + parts[1]) / 2, rtol=1e-6, atol=0)
    wide = nn.Linear(3, 1).double()
    merger = CheckpointMerger(window=1, interval=1, dtype=torch.float32)
    merger.update(1, wide)
    assert merger.merged_state_dict()["weight"].dtype == torch.float64


def test_tied_tensors_are_kept_once():
    model = nn.ModuleDict({"a": nn.Linear(4, 4, bias=False), "b": nn.Linear(4, 4, bias=False)})
    model["b"].weight = model["a"].weight
    merger = CheckpointMerger(window=3, interval=1)
    for step in (1, 2, 3):
        nn.init.normal_(model["a"].weight)
        merger.update(step, model)
    assert merger.bytes == 3 * 16 * 4
    merged = merger.merged_state_dict()
    assert list(merged) == ["a.weight", "b.weight"]
    assert merged["a.weight"].data_ptr() == merged["b.weight"].data_ptr()


@pytest.mark.parametrize("curve", ["linear", "1-sqrt"])
def test_an_averaged_model_goes_on_after_a_restart(curve):
    def build():
        return WSMAveragedModel(network(), curve, window=4)

    model, nested = network(), nn.ModuleDict({"average": build()})
    averaged, again = nested["average"], nn.ModuleDict({"average": build()})
    again["average"].update_parameters(network(3))  # states of another run, which must go
    for step in training(model, 6):
        if step == 4:
            again.load_state_dict(copy.deepcopy(nested.state_dict()))
            assert_same(again.state_dict(), nested.state_dict(), exact=True)
        averaged.update_parameters(model)
        if step >= 4:
            again["average"].update_parameters(model)
    assert_same(again.state_dict(), nested.state_dict(), exact=True)
    assert len(list(averaged.parameters())) > 5
    by_name = dict(sorted(averaged.state_dict().items(), key=lambda item: item[0][::-1]))
    other = build()
    other.load_state_dict(by_name)
    assert_same(other.state_dict(), averaged.state_dict(), exact=True)
    with pytest.raises(RuntimeError, match=r"kept\.0\.0"):
        WSMAveragedModel(network()).load_state_dict(by_name)
    plain = {k: v for k, v in averaged.state_dict().items() if not k.startswith("kept.")}
    with pytest.raises(RuntimeError, match=r"kept\.0\.0"):
        build().load_state_dict(plain)
    short = WSMAveragedModel(network(), curve, window=2)
    short.load_state_dict(averaged.state_dict())
    wanted = merge_checkpoints([{"w": s[0]} for s in list(averaged._states)[-2:]], curve=curve)
    torch.testing.assert_close(short.refresh().module[0].weight.detach(), wanted["w"])


class Adapter(nn.Module):
    def __init__(self):
        super().__init__()
        self.lora_A = nn.ModuleDict({"default": nn.Linear(4, 2, bias=False)})


@pytest.mark.parametrize(
    "take", [lambda m: WSMAveragedModel(m), lambda m: CheckpointMerger(window=1, interval=1).update(1, m)]
)
def test_factors_of_lora_are_refused(take):
    with pytest.raises(ValueError, match=r"'lora_A.default.weight' is a factor of LoRA"):
        take(Adapter())


def test_half_precision_states_take_half_the_memory():
    model = network()
    full, half = CheckpointMerger(window=4, interval=1), CheckpointMerger(window=4, interval=1, dtype=torch.bfloat16)
    for step in training(model, 4):
        full.update(step, model)
        half.update(step, model)
    assert half.bytes < 0.6 * full.bytes
    torch.testing.assert_close(
        half.merged_state_dict()["0.weight"].float(), full.merged_state_dict()["0.weight"], rtol=0.01, atol=0.01
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CheckpointMerger(window=10, interval=4), "window = 10, interval = 4: window must be a multiple"),
        (lambda: CheckpointMerger(window=10, interval=0), "interval = 0"),
        (lambda: CheckpointMerger("cubic"), "curve = 'cubic'"),
        (lambda: HierarchicalMerger(0), "interval = 0"),
        (lambda: WSMAveragedModel(nn.Linear(1, 1), "cosine"), "curve = 'cosine': without a window only"),
        (lambda: WSMAveragedModel(nn.Linear(1, 1), window=0), "window = 0"),
        (lambda: WSMAveragedModel(nn.Linear(1, 1), window=2.5), r"window = 2\.5"),
        (lambda: WSMAveragedModel(nn.Linear(1, 1), "cubic", window=2), "curve = 'cubic'"),
        (lambda: WSMAveragedModel(nn.Linear(1, 1), "ema", alpha=3), "alpha = 3"),
        (lambda: WSMAveragedModel(nn.Linear(1, 1), "ema", alpha="x"), "alpha = 'x'"),
        (lambda: WSMAveragedModel(nn.Linear(1, 1), "ema", r=0.5), "options .'r'.: 'ema' takes alpha"),
        (lambda: WSMAveragedModel(nn.Linear(1, 1), s=2), "options .'s'.: 'linear' takes none"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_steps_must_grow():
    merger = CheckpointMerger(window=2, interval=1)
    merger.update(5, nn.Linear(1, 1))
    with pytest.raises(ValueError, match="step = 5: the newest state is of step 5"):
        merger.update(5, nn.Linear(1, 1))


def test_windows_of_powers_of_two():
    model = network()
    merger = HierarchicalMerger(interval=2, levels=3)
    kept = {}
    for step in training(model, 20):
        taken = merger.update(step, model)
        assert taken == (step % 2 == 0)
        if taken:
            kept[step] = copy.deepcopy(model.state_dict())
    got = merger.windows()
    assert list(got) == [2, 4, 8]
    for window, steps in {2: [20], 4: [18, 20], 8: [10, 12, 14, 16]}.items():  # the newest block that is full
        torch.testing.assert_close(got[window]["0.weight"], torch.stack([kept[s]["0.weight"] for s in steps]).mean(0))


def test_windows_of_powers_of_two_are_not_rounded_on_the_way():
    model = nn.Linear(256, 1, bias=False).bfloat16()
    merger, kept = HierarchicalMerger(interval=1, levels=6), []
    for step in range(1, 33):
        nn.init.normal_(model.weight)
        merger.update(step, model)
        kept.append(model.weight.detach().float())
    got = merger.windows()[32]["weight"]
    assert got.dtype == torch.bfloat16
    assert torch.equal(got, torch.stack(kept).mean(0).bfloat16())


@pytest.mark.parametrize("use_buffers", [False, True])
def test_without_a_window_it_is_the_model_of_torch(use_buffers):
    model = network()
    ours, theirs = WSMAveragedModel(model, use_buffers=use_buffers), AveragedModel(model, use_buffers=use_buffers)
    ema = WSMAveragedModel(model, "ema", alpha=0.3, use_buffers=use_buffers)
    torch_ema = AveragedModel(model, avg_fn=get_ema_avg_fn(0.7), use_buffers=use_buffers)
    for _ in training(model, 7):
        for averaged in (ours, theirs, ema, torch_ema):
            averaged.update_parameters(model)
    assert_same(ours.state_dict(), theirs.state_dict())
    floats = [name for name, value in ema.state_dict().items() if value.is_floating_point()]
    assert_same({n: ema.state_dict()[n] for n in floats}, {n: torch_ema.state_dict()[n] for n in floats})


@pytest.mark.parametrize("curve", ["linear", "1-sqrt", "cosine"])
def test_with_a_window_it_merges_the_last_states(curve):
    model = network()
    averaged = WSMAveragedModel(model, curve, window=3)
    kept = []
    for _ in training(model, 7):
        averaged.update_parameters(model)
        kept.append([p.detach().clone() for p in model.parameters()])
    c = merge_weights(curve, 2)
    x = torch.randn(5, 4)
    averaged.eval()(x)  # merges by itself
    for i, parameter in enumerate(averaged.module.parameters()):
        torch.testing.assert_close(parameter.detach(), sum(float(w) * s[i] for w, s in zip(c, kept[-3:], strict=True)))
    assert int(averaged.n_averaged) == 7
    assert "module.0.weight" in averaged.state_dict()


def test_update_bn_renews_the_statistics():
    model = network()
    averaged = WSMAveragedModel(model, window=4)
    for _ in training(model, 5):
        averaged.update_parameters(model)
    data = [torch.randn(32, 4) + 3 for _ in range(4)]
    update_bn(data, averaged)
    inputs = averaged.module[0](torch.cat(data)).detach()
    torch.testing.assert_close(averaged.module[1].running_mean, inputs.mean(0), rtol=1e-3, atol=1e-3)


def trainer(tmp_path, callback, schedule="constant_with_warmup", **options):
    torch.manual_seed(0)
    config = TinyGPTConfig(
        vocab_size=16, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    rows = [{"input_ids": torch.arange(i, i + 6) % 16, "labels": torch.arange(i, i + 6) % 16} for i in range(32)]
    arguments = TrainingArguments(
        tmp_path, max_steps=8, per_device_train_batch_size=4, lr_scheduler_type=schedule, warmup_steps=2, report_to=[],
        use_cpu=True, disable_tqdm=True, logging_steps=100, save_strategy="steps", save_steps=4, **options,
    )  # fmt: skip
    return Trainer(TinyGPT(config), arguments, train_dataset=rows, eval_dataset=rows[:4], callbacks=[callback])


def test_a_trainer_writes_merged_models_and_trains_as_before(tmp_path):
    callback = WSMCallback(2, 4, evaluate=lambda model: {"norm": float(sum(p.norm() for p in model.parameters()))})
    run = trainer(tmp_path / "with", callback, eval_strategy="steps", eval_steps=4)
    run.train()
    plain = trainer(tmp_path / "without", WSMCallback(2, 4), eval_strategy="steps", eval_steps=4)
    plain.train()
    for a, b in zip(run.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert callback.merger.steps == [6, 8]
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "with" / "merged-8")
    wanted = callback.merger.merged_state_dict()
    for name, value in merged.named_parameters():
        torch.testing.assert_close(value, wanted[name])
    assert (tmp_path / "with" / "merged-4").is_dir()
    assert [row["step"] for row in run.state.log_history if "merged_norm" in row] == [4, 8]


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_schedule_that_decays_is_refused(tmp_path, schedule):
    with pytest.raises(ValueError, match=f"lr_scheduler_type = '{schedule}': WSM needs one of constant"):
        trainer(tmp_path, WSMCallback(2, 4), schedule).train()


def test_gradients_of_an_average_are_never_needed():
    averaged = WSMAveragedModel(network(), window=2)
    averaged.update_parameters(network(1))
    averaged.refresh()
    assert np.isfinite(float(averaged.eval()(torch.ones(2, 4)).sum()))


def test_a_run_that_is_resumed_merges_the_same(tmp_path):
    whole, halves = WSMCallback(2, 8), (WSMCallback(2, 8), WSMCallback(2, 8))
    trainer(tmp_path / "a", whole).train()
    first = trainer(tmp_path / "b", halves[0])
    first.args.max_steps = 4
    first.train()
    trainer(tmp_path / "b", halves[1]).train(resume_from_checkpoint=str(tmp_path / "b" / "checkpoint-4"))
    assert halves[1].merger.steps == whole.merger.steps == [2, 4, 6, 8]
    assert_same(halves[1].merger.merged_state_dict(), whole.merger.merged_state_dict(), exact=True)
    (tmp_path / "b" / "checkpoint-4" / "wsm_states.pt").unlink()
    with pytest.warns(UserWarning, match="the window begins anew at step 4"):
        trainer(tmp_path / "b", WSMCallback(2, 8)).train(resume_from_checkpoint=str(tmp_path / "b" / "checkpoint-4"))


def test_a_schedule_given_to_the_trainer_may_not_decay_either(tmp_path):
    run = trainer(tmp_path, WSMCallback(2, 4))
    optimiser = torch.optim.AdamW(run.model.parameters(), lr=0.01)
    run.optimizer, run.lr_scheduler = optimiser, torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.9)
    with pytest.raises(ValueError, match=r"the learning rate fell from 0\.00\d+ to 0\.00\d+ at step 2"):
        run.train()


def test_merges_beside_checkpoints_are_no_checkpoints(tmp_path):
    trainer(tmp_path, WSMCallback(2, 4)).train()
    assert {p.name for p in tmp_path.iterdir()} >= {"checkpoint-4", "checkpoint-8", "merged-4", "merged-8"}
    paths, steps = checkpoints_in(tmp_path)
    assert [p.name for p in paths] == ["checkpoint-4", "checkpoint-8"]
    assert steps == [4.0, 8.0]
