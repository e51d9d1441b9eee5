"""Classical optical flow: OpenCV's DIS and Farneback, scikit-image's TV-L1 and iterative Lucas-Kanade.

OpenCV is imported when it is used: with version 5 in a process that had loaded torch before, backward passes through
torch's oneDNN convolutions crashed here ("double free"); importing cv2 first, or torch.backends.mkldnn.enabled = False,
ran clean. Nothing else of this package imports it but KITTI's png files.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]
Flow = npt.NDArray[np.float32]


def _grey(picture: Picture) -> Picture:
    return np.rint(picture @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)


def zero_flow(first: Picture, second: Picture) -> Flow:
    """No motion at all: what anything has to beat.

    Args:
        first: Picture (height, width, 3), RGB.
        second: Picture of the same shape.
    """
    return np.zeros((*first.shape[:2], 2), np.float32)


def dis_flow(first: Picture, second: Picture) -> Flow:
    """Dense inverse search, OpenCV's medium preset.

    Args:
        first: Picture (height, width, 3), RGB.
        second: Picture of the same shape.
    """
    import cv2

    method = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    return method.calc(_grey(first), _grey(second), None)  # type: ignore[call-overload]


def farneback_flow(first: Picture, second: Picture) -> Flow:
    """Polynomial expansion, five levels, windows of 15 pixels.

    Args:
        first: Picture (height, width, 3), RGB.
        second: Picture of the same shape.
    """
    import cv2

    return cv2.calcOpticalFlowFarneback(_grey(first), _grey(second), None, 0.5, 5, 15, 5, 7, 1.5, 0)


def tvl1_flow(first: Picture, second: Picture) -> Flow:
    """Total variation with an L1 data term, scikit-image's values.

    Args:
        first: Picture (height, width, 3), RGB.
        second: Picture of the same shape.
    """
    from skimage.registration import optical_flow_tvl1

    v, u = optical_flow_tvl1(_grey(first) / np.float32(255), _grey(second) / np.float32(255))
    return np.dstack([u, v]).astype(np.float32)


def ilk_flow(first: Picture, second: Picture) -> Flow:
    """Iterative Lucas-Kanade, windows of radius 7.

    Args:
        first: Picture (height, width, 3), RGB.
        second: Picture of the same shape.
    """
    from skimage.registration import optical_flow_ilk

    v, u = optical_flow_ilk(_grey(first) / np.float32(255), _grey(second) / np.float32(255), radius=7)
    return np.dstack([u, v]).astype(np.float32)


CLASSICAL: dict[str, Callable[[Picture, Picture], Flow]] = {
    "zero": zero_flow,
    "dis": dis_flow,
    "farneback": farneback_flow,
    "tvl1": tvl1_flow,
    "ilk": ilk_flow,
}
