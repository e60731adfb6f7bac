"""Data that several tests of training read, and a group of one rank."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def group() -> Iterator[None]:
    """This process as a group of one rank."""
    # Imported here, since not every test of this folder needs torch.
    from train.engine.distributed import process_group, read_ranks

    with process_group(read_ranks()):
        yield


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder with images, a VAE, and their store; a test that changes it takes a copy."""
    # Imported here: the tests of a GPU also run where diffusers is missing.
    from tests.train.latent_stores import write_store

    return write_store(tmp_path_factory.mktemp("stored"))
