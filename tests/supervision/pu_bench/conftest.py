import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Operations here are tiny: with several threads they mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
