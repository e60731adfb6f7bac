"""What tests of several folders share."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """One thread: those that wait by spinning would keep the tests beside this one waiting."""
    # Imported where wanted: not every test needs torch.
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
