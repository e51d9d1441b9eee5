"""Ours beside a peer on the same inputs: times are compared after the results."""

from typing import Any

import numpy as np

from paperworks.claims.speed import Pair

from .documents import Document
from .index import NoisySearchIndex, tokenize


def _texts(count: int, words: int, rng: np.random.Generator) -> list[str]:
    """Texts whose words follow Zipf's law, 60 to 120 of them as in the corpus."""
    weights = 1 / np.arange(1, words + 1)
    draws = (rng.choice(words, int(rng.integers(60, 121)), p=weights / weights.sum()) for _ in range(count))
    return [" ".join(f"w{i}" for i in row) for row in draws]


def retrieval(size: str = "full") -> Pair:
    """Scores of the ten best pages for each query, ours through bm25s and rank-bm25's, with the same tokens.

    Full size is 10,000 pages and 5 queries of 8 words.
    """
    from rank_bm25 import BM25Plus

    pages, words, queries = (10_000, 5_000, 5) if size == "full" else (200, 300, 3)
    rng = np.random.default_rng(0)
    documents = [Document(str(i), f"w{i % words}", text) for i, text in enumerate(_texts(pages, words, rng))]
    asked = [" ".join(f"w{i}" for i in rng.choice(words, 8, replace=False)) for _ in range(queries)]
    index = NoisySearchIndex(documents, variant="bm25+", k1=1.5, b=0.75)
    theirs = BM25Plus([tokenize(f"{d.title}. {d.text}") for d in documents], k1=1.5, b=0.75, delta=0.5)
    split = [tokenize(query) for query in asked]

    def best(scores: Any) -> Any:
        return np.sort(np.partition(scores, -10)[-10:])

    return Pair(
        ours=lambda: np.stack([best(index.scores(query)) for query in asked]),
        peer=lambda: np.stack([best(theirs.get_scores(tokens)) for tokens in split]),
        rtol=1e-4,
        atol=1e-4,
    )


def shared_prompts(size: str = "full") -> Pair:
    """Log-probabilities of four options after contexts in which the gold page stands in three places.

    The peer runs each prompt with each option from its first token. An untrained model of 30 million parameters stands
    in at full size: what is saved does not depend on what the weights have learnt.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from paperworks.kit.lm import character_tokenizer
    from paperworks.kit.lm.likelihood import continuation_logprobs

    width, layers, page = (512, 8, 120) if size == "full" else (16, 1, 20)
    tokenizer = character_tokenizer(chr(i) for i in range(32, 127))
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=2048,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).eval()
    rng = np.random.default_rng(0)
    pages = ["".join(chr(c) for c in rng.integers(97, 123, page)) + "." for _ in range(4)]
    orders = [(0, 1, 2, 3), (1, 2, 0, 3), (1, 2, 3, 0)]
    prompts = [" ".join(pages[i] for i in order) + " Answer:" for order in orders]
    options = [[f" {name}" for name in ("Teram Sol", "Ludo Harnim", "Mirel Dast", "Pera Lind")]] * len(prompts)

    @torch.inference_mode()
    def written_out() -> Any:
        rows = []
        for prompt, own in zip(prompts, options, strict=True):
            start = tokenizer(prompt)["input_ids"]
            for option in own:
                end = tokenizer(option, add_special_tokens=False)["input_ids"]
                logits = model(torch.tensor([start + end]), logits_to_keep=len(end) + 1).logits[0, :-1]
                rows.append(logits.log_softmax(-1)[torch.arange(len(end)), torch.tensor(end)].sum())
        return torch.stack(rows)

    return Pair(
        ours=lambda: np.array(continuation_logprobs(model, tokenizer, prompts, options)).ravel(),
        peer=written_out,
        rtol=1e-4,
        atol=1e-3,
    )
