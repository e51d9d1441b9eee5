from .encoders import TextEncoder as TextEncoder
from .encoders import TwoTowers as TwoTowers
from .encoders import VisionEncoder as VisionEncoder
from .head import PHyCLIPHead as PHyCLIPHead
from .hierarchy import factor_report as factor_report
from .hierarchy import hierarchical_metrics as hierarchical_metrics
from .hierarchy import specialisation as specialisation
from .losses import PHyCLIPLoss as PHyCLIPLoss
from .pairwise import product_dist as product_dist
from .retrieval import HyperbolicRetriever as HyperbolicRetriever
from .retrieval import class_points as class_points
from .spaces import Cosine as Cosine
from .spaces import ProductEuclidean as ProductEuclidean
from .spaces import ProductHyperbolic as ProductHyperbolic
from .spaces import ProductMixed as ProductMixed
from .trees import embed_metric as embed_metric

__all__ = [
    "Cosine",
    "HyperbolicRetriever",
    "PHyCLIPHead",
    "PHyCLIPLoss",
    "ProductEuclidean",
    "ProductHyperbolic",
    "ProductMixed",
    "TextEncoder",
    "TwoTowers",
    "VisionEncoder",
    "class_points",
    "embed_metric",
    "factor_report",
    "hierarchical_metrics",
    "product_dist",
    "specialisation",
]
