"""The bytes of all storages that are alive, followed operation by operation.

`torch.distributed._tools.MemTracker` counts the same, module by module, at ten times the cost.
"""

import weakref
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode


class StorageTracker(TorchDispatchMode):
    """Inside the `with`: bytes `held` by tensors made in it, and the `peak` since it was set."""

    def __init__(self) -> None:
        super().__init__()
        self.held, self.peak = 0, 0
        self._sizes: dict[int, int] = {}
        self._resize = torch.UntypedStorage.resize_

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Carry out an operation and book what it made; a DTensor's on its local parts."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        made = func(*args, **(kwargs or {}))
        for thing in made if isinstance(made, (list, tuple)) else (made,):
            if isinstance(thing, Tensor) and thing.device.type != "meta":
                self._see(thing.untyped_storage())
        return made

    def __enter__(self) -> "StorageTracker":
        # Sharded parameters are freed and filled by resizing, which is no operation.
        def resize(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
            said = self._resize(storage, size)
            if storage._cdata in self._sizes:
                self._grow(storage._cdata, size)
            return said

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign,assignment]
        super().__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(kind, error, trace)

    def _see(self, storage: torch.UntypedStorage) -> None:
        name = storage._cdata
        if name not in self._sizes:
            self._sizes[name] = 0
            self._grow(name, storage.nbytes())
            weakref.finalize(storage, self._forget, name).atexit = False

    def _grow(self, name: int, size: int) -> None:
        self.held += size - self._sizes[name]
        self._sizes[name] = size
        self.peak = max(self.peak, self.held)

    def _forget(self, name: int) -> None:
        self.held -= self._sizes.pop(name)
