"""Track the bytes of all live storages, operation by operation.

`torch.distributed._tools.MemTracker` counts the same by module, at ten times the cost.
"""

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass


class StorageTracker(TorchDispatchMode):
    """Within the `with` block: the bytes `held` by tensors made in it, and their `peak`.

    To measure the peak of a section, set `peak` to `held` at its start.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held, self.peak = 0, 0
        self._sizes: dict[int, int] = {}
        self._resize = torch.UntypedStorage.resize_

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation and count the storages it makes; of a DTensor, its local part."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        output = func(*args, **(kwargs or {}))
        for value in output if isinstance(output, (list, tuple)) else (output,):
            # A wrapper around other tensors, such as an 8-bit weight, has no bytes of its own.
            is_wrapper = is_traceable_wrapper_subclass(value)
            if isinstance(value, Tensor) and value.device.type != "meta" and not is_wrapper:
                self._track(value.untyped_storage())
        return output

    def __enter__(self) -> "StorageTracker":
        # FSDP frees and fills its parameters by resizing storages, which is not an operation.
        def resize(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
            resized = self._resize(storage, size)
            if storage._cdata in self._sizes:
                self._set_size(storage._cdata, size)
            return resized

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign,assignment]
        super().__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*details)

    def _track(self, storage: torch.UntypedStorage) -> None:
        name = storage._cdata
        if name not in self._sizes:
            self._sizes[name] = 0
            self._set_size(name, storage.nbytes())
            weakref.finalize(storage, self._forget, name).atexit = False

    def _set_size(self, name: int, size: int) -> None:
        self.held += size - self._sizes[name]
        self._sizes[name] = size
        self.peak = max(self.peak, self.held)

    def _forget(self, name: int) -> None:
        self.held -= self._sizes.pop(name)
