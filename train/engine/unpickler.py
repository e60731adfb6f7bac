"""Reading the pickles of torch.distributed.checkpoint (DCP) without running code in them.

These are the plans, results and errors that ranks exchange, and the metadata of a checkpoint.
"""

import builtins
import pickle
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import ReadItem

_DCP = {
    "BytesStorageMetadata", "CheckpointException", "ChunkStorageMetadata", "LoadItemType",
    "LoadPlan", "Metadata", "MetadataIndex", "ReadItem", "SavePlan", "StorageMeta",
    "TensorProperties", "TensorStorageMetadata", "TensorWriteData", "WriteItem", "WriteItemType",
    "WriteResult", "_MEM_FORMAT_ENCODING", "_StorageInfo", "_StoragePrefix",
}  # fmt: skip
_OTHERS = {
    "torch.Size", "torch.serialization._get_layout", "torch.distributed.DistBackendError",
    "traceback.FrameSummary", "traceback.StackSummary", "_pickle.UnpicklingError",
    "pathlib.PosixPath", "pathlib._local.PosixPath", "runs.records.Superseded",
}  # fmt: skip


class DcpUnpickler(pickle.Unpickler):
    """Builds the classes of DCP, dtypes and built-in exceptions; refuses any other name."""

    def find_class(self, module: str, name: str, /) -> Any:
        """Return a class that a pickle names; raise `UnpicklingError` if it is not listed."""
        of_dcp = module.startswith("torch.distributed.checkpoint.") and name in _DCP
        if of_dcp or f"{module}.{name}" in _OTHERS:
            return super().find_class(module, name)
        found = getattr({"torch": torch, "builtins": builtins}.get(module), name, None)
        is_error = isinstance(found, type) and issubclass(found, Exception)
        if is_error or isinstance(found, torch.dtype):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a checkpoint: refused")


class CheckpointReader(dcp.FileSystemReader):
    """Reads a checkpoint without running code in its metadata."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """Return the metadata, read by `DcpUnpickler`."""
        with (Path(self.path) / ".metadata").open("rb") as file:
            metadata: Metadata = DcpUnpickler(file).load()
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


class _TensorPlanner(dcp.DefaultLoadPlanner):
    def load_bytes(self, read_item: ReadItem, value: object) -> None:
        raise pickle.UnpicklingError(f"{read_item.storage_index.fqn} is no tensor: not unpickled")


def load_tensors(state: dict[str, Any], checkpoint: Path) -> None:
    """Load a checkpoint into the tensors of `state`, in place. Collective."""
    dcp.load(state, storage_reader=CheckpointReader(checkpoint), planner=_TensorPlanner())
