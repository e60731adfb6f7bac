"""Data that several tests of training read."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder with images, a VAE, and their store; a test that changes it takes a copy."""
    # Imported here: the tests of a GPU also run where diffusers is missing.
    from tests.train.latent_stores import write_store

    return write_store(tmp_path_factory.mktemp("stored"))
