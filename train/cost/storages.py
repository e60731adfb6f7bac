"""Follow the bytes of all tensors through a step, allocation by allocation."""

import contextlib
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils.flop_counter import flop_registry


@dataclass(frozen=True)
class Segment:
    """A part of a step: a pass of a `block` or another, and the bytes held after allocations."""

    name: str
    block: int | None
    held: list[int]


class StorageTracker(TorchDispatchMode):
    """Within the `with` block: the bytes `held` by tensors made in it, and `flops`.

    `segments` has, after each `mark`, the bytes held after each allocation. MemTracker of
    `torch.distributed._tools` counts the same by module, at ten times the cost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held = self.flops = 0
        self.segments: list[Segment] = []
        self._sizes: dict[int, int] = {}
        self._resize = torch.UntypedStorage.resize_
        self._is_paused = False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let torch.compile work as without this mode, and count its graphs when they run."""
        return True

    def mark(self, name: str, block: int | None = None) -> None:
        """Begin a segment."""
        self.segments.append(Segment(name, block, [self.held]))

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the storages made in the `with` block: a kernel keeps them in registers."""
        before, self._is_paused = self._is_paused, True
        try:
            yield
        finally:
            self._is_paused = before

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation and count the storages it makes; of a DTensor, its local part."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        output = func(*args, **(kwargs or {}))
        if counted := flop_registry.get(func.overloadpacket):
            self.flops += int(counted(*args, **(kwargs or {}), out_val=output))
        elif func.overloadpacket in _CPU_ATTENTION:
            self.flops += _attention_flops(func, args)
        if self._is_paused:
            return output
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
        grown = size - self._sizes[name]
        self.held += grown
        self._sizes[name] = size
        if grown > 0 and self.segments:
            self.segments[-1].held.append(self.held)

    def _forget(self, name: int) -> None:
        self.held -= self._sizes.pop(name)


_CPU_ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: 2,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: 5,
}


def _attention_flops(func: Any, args: tuple[Any, ...]) -> int:
    """Return the FLOPs of flash attention: of its products, two forward and five backward."""
    products = _CPU_ATTENTION[func.overloadpacket]
    batch, heads, queries, width = args[0].shape  # the query, or the gradient of the output
    keys = (args[2] if products == 5 else args[1]).shape[2]
    return 2 * products * batch * heads * queries * keys * width


def mark_passes(block: nn.Module, stack: str, number: int, storages: StorageTracker) -> None:
    """Begin a segment when a block's forward and backward pass begin."""
    module = cast(Any, block)
    run: Callable[..., Any] = module._compiled_call_impl or module._call_impl

    def marked(*args: Any, **kwargs: Any) -> Any:
        storages.mark(f"{stack} forward", number)
        output = run(*args, **kwargs)
        first = output if isinstance(output, Tensor) else output[0]
        if first.requires_grad:
            first.register_hook(lambda _: storages.mark(f"{stack} backward", number))
        return output

    module._compiled_call_impl = marked
