from .efficientnet import EfficientNetLite0 as EfficientNetLite0
from .efficientnet import efficientnet_lite0 as efficientnet_lite0
from .efficientnet import image_features as image_features
