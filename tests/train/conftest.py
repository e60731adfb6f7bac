"""Data that several tests of training read."""

from pathlib import Path

import pytest

from tests.train.latent_stores import write_store


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder with images, a VAE, and their store; a test that changes it takes a copy."""
    return write_store(tmp_path_factory.mktemp("stored"))
