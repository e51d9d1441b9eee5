import pytest
import torch


@pytest.fixture(autouse=True)
def no_onednn():
    """With the wheel of OpenCV 5 in the same process oneDNN's backward passes corrupt memory."""
    was = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    yield
    torch.backends.mkldnn.enabled = was
