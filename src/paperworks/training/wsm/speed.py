"""Ours beside a peer on the same inputs: times are compared after the results."""

import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from paperworks.claims.speed import Pair

from .merge import merge_checkpoints
from .online import WSMAveragedModel

_folders: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


def _folder() -> Path:
    _folders.append(tempfile.TemporaryDirectory())
    return Path(_folders[-1].name)


def _checkpoints(folder: Path, count: int, size: str) -> list[Path]:
    """Llama checkpoints with the shapes of SmolLM2-135M (0.5 GB each), or tiny ones."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = (
        {
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "vocab_size": 49152,
        }
        if size == "full"
        else {
            "hidden_size": 16,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "vocab_size": 64,
        }
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=True))  # type: ignore[arg-type]
    paths = []
    for i in range(count):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.01 * torch.randn(()))
        paths.append(folder / f"checkpoint-{i}")
        model.save_pretrained(paths[-1])
    return paths


def streaming(size: str = "full") -> Pair:
    """The mean of 4 checkpoints of 135 M parameters, from and to safetensors: ours and mergekit's linear merge."""
    from mergekit.config import MergeConfiguration
    from mergekit.merge import MergeOptions, run_merge

    folder = _folder()
    paths = _checkpoints(folder, 4, size)
    config = MergeConfiguration.model_validate(
        {
            "merge_method": "linear",
            "dtype": "float32",
            "models": [{"model": str(p), "parameters": {"weight": 0.25}} for p in paths],
        }
    )
    options = MergeOptions(copy_tokenizer=False, quiet=True, write_model_card=False)
    names = list(load_file(paths[0] / "model.safetensors"))[:3]

    def some(out: Path) -> tuple[Tensor, ...]:
        written = sorted(out.glob("*.safetensors"))
        tensors: dict[str, Tensor] = {}
        for file in written:
            tensors |= load_file(file)
        return tuple(tensors[name] for name in names)

    def ours() -> tuple[Tensor, ...]:
        return some(Path(merge_checkpoints(paths, out=folder / "ours")))  # type: ignore[arg-type]

    def peer() -> tuple[Tensor, ...]:
        run_merge(config, str(folder / "peer"), options)
        return some(folder / "peer")

    return Pair(ours=ours, peer=peer, rtol=1e-5, atol=1e-6)


def bandwidth(size: str = "full") -> Pair:
    """The same merge, and the bare work that it cannot do without: reading 4 files, adding, writing one."""
    folder = _folder()
    paths = [p / "model.safetensors" for p in _checkpoints(folder, 4, size)]

    def ours() -> Tensor:
        merge_checkpoints(paths, out=folder / "ours.safetensors")
        return next(iter(load_file(folder / "ours.safetensors").values()))

    def peer() -> Tensor:
        parts = [load_file(p) for p in paths]
        total = {name: value.mul(0.25) for name, value in parts[0].items()}
        for part in parts[1:]:
            for name, value in part.items():
                total[name].add_(value, alpha=0.25)
        save_file(total, folder / "peer.safetensors")
        return next(iter(load_file(folder / "peer.safetensors").values()))

    return Pair(ours=ours, peer=peer, rtol=1e-5, atol=1e-6)


def online(size: str = "full") -> Pair:
    """20 updates of the running mean of a network with 4 M parameters: ours and torch's `AveragedModel`."""
    width = 1024 if size == "full" else 8
    torch.manual_seed(0)
    models = [nn.Sequential(*(nn.Linear(width, width) for _ in range(4))) for _ in range(2)]
    ours_model, peer_model = WSMAveragedModel(models[0]), AveragedModel(models[0])

    def run(averaged: AveragedModel) -> Tensor:
        averaged.n_averaged.zero_()
        for i in range(20):
            averaged.update_parameters(models[i % 7 > 1])  # 6 times the first, 14 times the second
        return averaged.module[0].weight.detach().clone()  # type: ignore[no-any-return, index]

    return Pair(ours=lambda: run(ours_model), peer=lambda: run(peer_model), rtol=1e-5, atol=1e-6)
