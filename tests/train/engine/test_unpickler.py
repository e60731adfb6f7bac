"""Nothing but the classes of a checkpoint is built from a pickle, wherever it comes from."""

import errno
import pickle
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from tests.stranger import Bomb
from train.engine.distributed import from_every_rank, from_rank_0
from train.engine.unpickler import DcpUnpickler, load_tensors


def test_an_object_collective_refuses_a_pickle_that_names_other_code(
    group: None, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    with pytest.raises(pickle.UnpicklingError, match="refused"):
        dist.all_gather_object([None], Bomb(str(marker)))
    assert not marker.exists()


def test_ranks_tell_each_other_errors_and_json(group: None) -> None:
    answer: list[object] = [None]
    dist.all_gather_object(answer, OSError(errno.ENOSPC, "full"))
    assert str(answer) == "[OSError(28, 'full')]"
    kept = [{"a": [1, None, "ä"]}, 0.1]
    assert from_rank_0(kept) == from_every_rank(kept)[0] == kept


@pytest.mark.parametrize("name", ["eval", "getattr", "__import__", "type", "SystemExit"])
def test_no_builtin_but_exceptions_is_found(name: str) -> None:
    with pytest.raises(pickle.UnpicklingError):
        DcpUnpickler.__new__(DcpUnpickler).find_class("builtins", name)


def test_code_in_the_metadata_of_a_checkpoint_does_not_run(group: None, tmp_path: Path) -> None:
    marker, state = tmp_path / "ran", {"a": torch.arange(3.0)}
    dcp.save(state, checkpoint_id=tmp_path / "sound")
    read = {"a": torch.zeros(3)}
    load_tensors(read, tmp_path / "sound")
    assert torch.equal(read["a"], state["a"])
    (tmp_path / "sound" / ".metadata").write_bytes(pickle.dumps(Bomb(str(marker))))
    with pytest.raises(BaseException, match="refused"):
        load_tensors(read, tmp_path / "sound")
    assert not marker.exists()


def test_an_object_in_the_place_of_a_tensor_is_not_unpickled(group: None, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    dcp.save({"a": Bomb(str(marker))}, checkpoint_id=tmp_path / "planted")
    with pytest.raises(BaseException, match="no tensor"):
        load_tensors({"a": torch.zeros(3)}, tmp_path / "planted")
    assert not marker.exists()
