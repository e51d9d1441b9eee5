from .embedding import embed_lm as embed_lm
from .minilm import encode as encode
from .minilm import load_minilm as load_minilm
from .smollm2 import load_smollm2 as load_smollm2

__all__ = [
    "embed_lm",
    "encode",
    "load_minilm",
    "load_smollm2",
]
