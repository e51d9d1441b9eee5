"""Merging files and folders: every format gives the same bits, memory stays bounded, what cannot be merged is named."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from paperworks.training.wsm import checkpoints_in, decay_from_merge, fit_weights, merge_checkpoints, merge_weights
from paperworks.training.wsm.__main__ import main


def states(count=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        {
            "a.weight": torch.randn(3, 5, generator=generator),
            "b": torch.randn(4, generator=generator, dtype=torch.float64),
            "half": torch.randn(7, generator=generator).bfloat16(),
            "steps": torch.tensor(i),
            "mask": torch.tensor([i % 2 == 0, True]),
            "empty": torch.zeros(0, 3),
        }
        for i in range(count)
    ]


def expected(all_states, c):
    out = {}
    for name, newest in all_states[-1].items():
        if newest.is_floating_point():
            out[name] = sum(float(w) * s[name].double() for w, s in zip(c, all_states, strict=True)).to(newest.dtype)
        else:
            out[name] = newest
    return out


def same(got, wanted):
    assert list(got) == list(wanted)
    for name in wanted:
        assert got[name].dtype == wanted[name].dtype
        torch.testing.assert_close(
            got[name], wanted[name], rtol=2e-6 if wanted[name].dtype != torch.bfloat16 else 8e-3, atol=1e-6
        )


@pytest.mark.parametrize("curve", ["linear", "1-sqrt", "ema"])
def test_floats_are_averaged_and_the_rest_is_the_newest(curve):
    s = states()
    same(merge_checkpoints(s, curve=curve), expected(s, merge_weights(curve, 3)))
    assert all(not torch.equal(s[-1][n], merge_checkpoints(s)[n]) for n in ("a.weight", "b", "half"))


def test_one_checkpoint_is_returned_as_a_copy():
    s = states(1)
    got = merge_checkpoints(s)
    same(got, s[0])
    assert got["a.weight"].data_ptr() != s[0]["a.weight"].data_ptr()


def test_every_format_gives_the_same_bits(tmp_path):
    s = states()
    wanted = merge_checkpoints(s, curve="cosine")
    torch_files, tensor_files = [], []
    for i, state in enumerate(s):
        torch_files.append(tmp_path / f"step_{i}.pt")
        torch.save({"state_dict": state, "epoch": 3} if i % 2 else state, torch_files[-1])
        tensor_files.append(tmp_path / f"step_{i}.safetensors")
        save_file(state, tensor_files[-1])
    mixed = [s[0], torch_files[1], str(tensor_files[2]), s[3]]
    for sources in (torch_files, tensor_files, mixed):
        got = merge_checkpoints(sources, curve="cosine")
        for name in wanted:
            assert torch.equal(got[name], wanted[name]), name
    for out in ("whole.safetensors", "whole.pt"):
        for streaming in (True, False):
            path = merge_checkpoints(tensor_files, curve="cosine", out=tmp_path / out, streaming=streaming)
            loaded = load_file(path) if out.endswith("safetensors") else torch.load(path, weights_only=True)
            assert set(loaded) == set(wanted)
            for name in wanted:
                assert torch.equal(loaded[name], wanted[name]), name
    assert not list(tmp_path.glob(".*"))


def test_weights_dtype_and_steps():
    s = states(3)
    same(merge_checkpoints(s, [0.2, 0.3, 0.5]), expected(s, [0.2, 0.3, 0.5]))
    half = merge_checkpoints(s, dtype=torch.float16)
    assert half["a.weight"].dtype == half["b"].dtype == torch.float16
    assert half["steps"].dtype == torch.int64
    same(merge_checkpoints(s, steps=[0, 1, 5]), expected(s, merge_weights("linear", steps=[0, 1, 5])))


def test_bfloat16_is_summed_in_float32():
    """256 equal small steps on a large number are lost when the sum is kept in bfloat16."""
    s = [{"w": torch.full((1,), 1.0 + 2**-7).bfloat16()} for _ in range(256)]
    assert float(merge_checkpoints(s)["w"]) == 1.0 + 2**-7


def llama(tmp_path, seed, step, **options):
    torch.manual_seed(seed)
    shape = LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, vocab_size=40, **options
    )
    model = LlamaForCausalLM(shape)
    folder = tmp_path / f"checkpoint-{step}"
    model.save_pretrained(folder, max_shard_size="8KB")
    return model, folder


def test_folders_of_hugging_face_stay_what_they_are(tmp_path):
    models, folders = zip(*(llama(tmp_path, i, 10 * i, tie_word_embeddings=True) for i in (1, 2, 3)), strict=True)
    assert len(list(folders[0].glob("*.safetensors"))) > 1
    (folders[2] / "optimizer.pt").write_bytes(b"no weights")
    out = merge_checkpoints(folders, curve="1-sqrt", out=tmp_path / "merged")
    loaded = AutoModelForCausalLM.from_pretrained(out)
    assert loaded.config.vocab_size == 40
    c = merge_weights("1-sqrt", 2)
    for name, value in loaded.named_parameters():
        wanted = sum(float(w) * dict(m.named_parameters())[name] for w, m in zip(c, models, strict=True))
        torch.testing.assert_close(value, wanted)
    assert loaded.lm_head.weight.data_ptr() == loaded.model.embed_tokens.weight.data_ptr()
    assert not (out / "optimizer.pt").exists()
    assert {p.name for p in out.glob("*.safetensors")} == {p.name for p in folders[2].glob("*.safetensors")}


def test_tied_weights_are_merged_once():
    layer = nn.Linear(4, 4, bias=False)
    other = nn.Linear(4, 4, bias=False)
    other.weight = layer.weight
    state = nn.Sequential(layer, other).state_dict()
    got = merge_checkpoints([state, state])
    assert got["0.weight"].data_ptr() == got["1.weight"].data_ptr()
    torch.testing.assert_close(got["0.weight"], layer.weight.detach())


def test_streaming_keeps_memory_bounded(tmp_path):
    """Four checkpoints of 64 MB in a process of its own: the peak grows by about two tensors of 8 MB."""
    code = """
import sys, threading, time
from pathlib import Path
from paperworks.training.wsm import merge_checkpoints

folder = Path(sys.argv[1])
paths = [folder / f"{i}.safetensors" for i in range(4)]

def used():  # MB that are no file's
    return int([l for l in open("/proc/self/status") if l.startswith("RssAnon")][0].split()[1]) / 1024

def extra(streaming):
    start, peaks, done = used(), [0.0], threading.Event()
    def watch():
        while not done.is_set():
            peaks.append(used())
            time.sleep(0.001)
    thread = threading.Thread(target=watch)
    thread.start()
    merge_checkpoints(paths, out=folder / "out.safetensors", streaming=streaming)
    done.set()
    thread.join()
    return max(peaks) - start

merge_checkpoints(paths[:1], out=folder / "warm.safetensors")
print(extra(True), extra(False))
"""
    for i in range(4):
        save_file({f"t{j}": torch.randn(2**21) for j in range(8)}, tmp_path / f"{i}.safetensors")
    # What is freed is given back at once, so that the peak is of what is held.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1048576"}
    run = [sys.executable, "-c", code, str(tmp_path)]
    out = subprocess.run(run, capture_output=True, text=True, check=True, env=environment).stdout
    streamed, whole = map(float, out.split())
    assert streamed < 34  # two tensors of 8 MB, and room
    assert whole > 55  # the result is 64 MB


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s[0].pop("b"), r"sources\[0\] \(state dict\) lacks 'b'"),
        (lambda s: s[0].update(extra=torch.zeros(1)), r"sources\[0\] \(state dict\) alone has 'extra'"),
        (
            lambda s: s[1].update(b=torch.zeros(9)),
            r"'b' has shape \(9,\) in sources\[1\] \(state dict\), \(4,\) in the newest",
        ),
        (lambda s: s[-1].update({"q.lora_A.weight": torch.zeros(2, 2)}), "'q.lora_A.weight' is a factor of LoRA"),
        (
            lambda s: s[-1].update({"q.weight": torch.zeros(2, 2, dtype=torch.int8)}),
            "'q.weight' has dtype torch.int8: quantised",
        ),
        (lambda s: s[0].update(b="text"), "state dict: 'b' is a str, not a tensor"),
        (lambda s: s.clear(), "sources is empty"),
    ],
)
def test_what_cannot_be_merged_is_named(change, message):
    s = states(3)
    change(s)
    with pytest.raises(ValueError, match=message):
        merge_checkpoints(s)


def test_wrong_weights_and_paths_are_named(tmp_path):
    s = states(3)
    with pytest.raises(ValueError, match=r"weights of shape \(2,\) sum to 1: 3 that sum to 1"):
        merge_checkpoints(s, [0.5, 0.5])
    with pytest.raises(ValueError, match=r"sum to 0.9"):
        merge_checkpoints(s, [0.5, 0.2, 0.2])
    with pytest.raises(ValueError, match=r"weights were given: alpha would not be used"):
        merge_checkpoints(s, [0.5, 0.2, 0.3], alpha=0.5)
    with pytest.raises(ValueError, match=r"weights were given: steps, curve would not be used"):
        merge_checkpoints(s, [0.5, 0.2, 0.3], curve="cosine", steps=[1, 2, 4])
    with pytest.raises(ValueError, match=r"weights\[1\] = -0.2: 0 or more"):
        merge_checkpoints(s, [0.5, -0.2, 0.7])
    same(merge_checkpoints(s, [0.5, -0.2, 0.7], allow_negative=True), expected(s, [0.5, -0.2, 0.7]))
    with pytest.raises(ValueError, match=r"dtype = torch.int8: a floating-point type"):
        merge_checkpoints(s, dtype=torch.int8)
    with pytest.raises(ValueError, match=r"options \['s'\]: a function of x takes none"):
        merge_checkpoints(s, curve=lambda x: 1 - x, s=3)
    with pytest.raises(FileNotFoundError, match="no such checkpoint"):
        merge_checkpoints([tmp_path / "none.pt"])
    with pytest.raises(FileNotFoundError, match="no weights in this folder"):
        merge_checkpoints([tmp_path])
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(ValueError, match="holds a list, not a state dict"):
        merge_checkpoints([tmp_path / "list.pt"])
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "../x.safetensors"}})
    )
    with pytest.raises(ValueError, match="leaves the folder"):
        merge_checkpoints([tmp_path / "bad"])


def test_eight_bit_floats_are_refused():
    s = [{"w": torch.randn(4, 4).to(torch.float8_e4m3fn), "w_scale_inv": torch.rand(1)} for _ in range(2)]
    plain = {"w": torch.randn(4, 4), "w_scale_inv": torch.rand(1)}
    for sources in (s, [s[0], plain]):
        with pytest.raises(ValueError, match=r"'w' has dtype torch\.float8_e4m3fn: quantised weights cannot"):
            merge_checkpoints(sources)


def test_a_dot_in_a_name_makes_no_file_of_a_folder(tmp_path):
    s = [{"w": torch.randn(4)} for _ in range(2)]
    assert merge_checkpoints(s, out=tmp_path / "merged-v0.5") == tmp_path / "merged-v0.5"
    assert (tmp_path / "merged-v0.5" / "model.safetensors").exists()
    assert merge_checkpoints(s, out=tmp_path / "merged.pt").is_file()


def test_nothing_is_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "boom"), "w"))

    torch.save({"w": torch.zeros(1), "bomb": Bomb()}, tmp_path / "bomb.pt")
    with pytest.raises(Exception, match=r"weights_only|Unsupported"):
        merge_checkpoints([tmp_path / "bomb.pt"])
    assert not (tmp_path / "boom").exists()


def test_a_failure_leaves_the_old_file_whole(tmp_path):
    s = states(2)
    out = merge_checkpoints(s, out=tmp_path / "out.safetensors")
    before = out.read_bytes()
    s[0]["b"] = torch.zeros(4, dtype=torch.float64, device="meta")  # has a shape, but nothing to read
    with pytest.raises(TypeError):
        merge_checkpoints(s, out=out)
    assert out.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["out.safetensors"]


def test_the_command_prints_the_decay_and_merges(tmp_path, capsys):
    s = states(5)
    for i, state in enumerate(s):
        save_file(state, tmp_path / f"step_{100 * (i + 1)}.safetensors")
    (tmp_path / "notes-7.txt").write_text("no checkpoint")
    paths, steps = checkpoints_in(tmp_path)
    assert steps == [100, 200, 300, 400, 500]
    assert paths[0].name == "step_100.safetensors"
    assert (
        main([str(tmp_path), "--curve", "1-sqrt", "--window", "300", "--out", str(tmp_path / "out.safetensors")]) == 0
    )
    printed = capsys.readouterr().out
    assert "3 checkpoints, steps 300 to 500" in printed
    c = merge_weights("1-sqrt", 2)
    rows = [line.split() for line in printed.splitlines()[2:5]]
    assert [float(r[1]) for r in rows] == pytest.approx(c, abs=5e-5)
    assert [float(r[2]) for r in rows] == pytest.approx([1, *decay_from_merge(c)], abs=5e-5)
    same(load_file(tmp_path / "out.safetensors"), dict(sorted(expected(s[2:], c).items())))
    assert main([str(tmp_path), "--last", "2"]) == 0
    assert "2 checkpoints" in capsys.readouterr().out
    for wrong, message in [
        ([str(tmp_path), "--curve", "cubic"], "curve = 'cubic'"),
        ([str(tmp_path), "--last", "0"], "--last 0"),
        ([str(tmp_path), "--last", "2", "--window", "9"], "only one of them"),
        ([str(tmp_path / "none")], "no checkpoints with a step"),
    ]:
        assert main(wrong) == 2
        assert message in capsys.readouterr().err
    (tmp_path / "copy_500.pt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"both of step 500"):
        checkpoints_in(tmp_path)


def test_fitted_weights_find_the_checkpoint_that_is_best_and_tell_of_overfitting():
    model = nn.Linear(3, 1, bias=False)
    s = [{"weight": torch.tensor([[float(i), 0.0, 1.0]])} for i in range(4)]
    x = torch.eye(3)

    def loss(target):
        return lambda m: (m(x) - target).square().mean()

    target = torch.tensor([[2.25], [0.0], [1.0]])  # between checkpoints 2 and 3
    before = model.weight.clone()
    c = fit_weights(model, s, loss(target), steps=300)
    assert c.min() >= 0
    assert c.sum() == pytest.approx(1, abs=1e-5)
    assert sum(w * i for i, w in enumerate(c)) == pytest.approx(2.25, abs=0.02)
    assert torch.equal(model.weight, before)
    with pytest.warns(UserWarning, match="overfitted"):
        fit_weights(model, s, loss(target), held_out=loss(torch.tensor([[0.0], [0.0], [1.0]])))
    with pytest.raises(ValueError, match="sources is empty"):
        fit_weights(model, [], loss(target))
