"""What tests of trainers share: a task, a tiny model, a reward that needs no training, a look at the log."""

import numpy as np
import torch
from datasets import Dataset

from paperworks.kit.lm import Sums, TinyGPT, TinyGPTConfig, character_tokenizer

TASK = Sums(1)
TOKENIZER = character_tokenizer(TASK.alphabet)
EOS, PAD = TOKENIZER.eos_token_id, TOKENIZER.pad_token_id
PROMPTS = Dataset.from_list([{"prompt": p.prompt} for p in TASK.sample(np.random.default_rng(0), "train", 32)])


def tiny(seed=0, layers=2):
    torch.manual_seed(seed)
    return TinyGPT(
        TinyGPTConfig(
            vocab_size=len(TOKENIZER), hidden_size=16, intermediate_size=24, num_hidden_layers=layers,
            num_attention_heads=2, pad_token_id=PAD, bos_token_id=TOKENIZER.bos_token_id, eos_token_id=EOS,
            initializer_range=0.3,
        )
    )  # fmt: skip


def even(completions, **_):
    return [sum(c in "02468" for c in text) / 4 for text in completions]


def curve(trainer, name):
    return [row[name] for row in trainer.state.log_history if name in row]
