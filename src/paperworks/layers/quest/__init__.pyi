from .attacks import fgsm as fgsm
from .attacks import pgd as pgd
from .attention import NORMS as NORMS
from .attention import attention_logits as attention_logits
from .attention import attention_weights as attention_weights
from .attention import quest_attention as quest_attention
from .attention import value_change_metric as value_change_metric
from .cache import UnitKeyCache as UnitKeyCache
from .convert import convert_attention as convert_attention
from .convert import register_quest as register_quest
from .corruptions import corrupt as corrupt
from .distill import distill_attention as distill_attention
from .module import QuestAttention as QuestAttention
from .probe import AttentionProbe as AttentionProbe
from .retrieval import BiasedRetrieval as BiasedRetrieval
from .retrieval import RetrievalModel as RetrievalModel
from .vit import ViT as ViT

__all__ = [
    "NORMS",
    "AttentionProbe",
    "BiasedRetrieval",
    "QuestAttention",
    "RetrievalModel",
    "UnitKeyCache",
    "ViT",
    "attention_logits",
    "attention_weights",
    "convert_attention",
    "corrupt",
    "distill_attention",
    "fgsm",
    "pgd",
    "quest_attention",
    "register_quest",
    "value_change_metric",
]
