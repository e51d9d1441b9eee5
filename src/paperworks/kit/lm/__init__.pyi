from .embedding import embed_lm as embed_lm
from .minilm import encode as encode
from .minilm import load_minilm as load_minilm
from .pretraining import Pretrained as Pretrained
from .pretraining import exact_match as exact_match
from .pretraining import pretrain as pretrain
from .smollm2 import load_smollm2 as load_smollm2
from .tasks import Countdown as Countdown
from .tasks import LookUps as LookUps
from .tasks import Problem as Problem
from .tasks import Sums as Sums
from .tasks import Task as Task
from .tinygpt import TinyGPT as TinyGPT
from .tinygpt import TinyGPTConfig as TinyGPTConfig
from .tokenizers import character_tokenizer as character_tokenizer
from .tokenizers import word_tokenizer as word_tokenizer

__all__ = [
    "Countdown",
    "LookUps",
    "Pretrained",
    "Problem",
    "Sums",
    "Task",
    "TinyGPT",
    "TinyGPTConfig",
    "character_tokenizer",
    "embed_lm",
    "encode",
    "exact_match",
    "load_minilm",
    "load_smollm2",
    "pretrain",
    "word_tokenizer",
]
