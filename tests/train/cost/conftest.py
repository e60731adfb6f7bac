"""Kept costs of these tests, apart from those of the user."""

from collections.abc import Iterator

import pytest

from train.cost import kept


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep costs and measured steps in a folder of this session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(kept, "_in_memory", {})
        yield
