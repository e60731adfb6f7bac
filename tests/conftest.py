"""Fixtures for tests of several folders."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Run on one thread: threads that wait by spinning would slow the tests beside this one."""
    # Imported here, since not every test needs torch.
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
