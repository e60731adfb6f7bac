"""The role of a layer in its network, for all code that treats layers differently.

Tensor parallelism and Muon ask the layers; none of them knows an architecture.
"""

from dataclasses import dataclass
from typing import Literal, TypeVar

from torch import nn

Layer = TypeVar("Layer", bound=nn.Module)


@dataclass(frozen=True, kw_only=True)
class Role:
    """The role of a layer.

    `is_hidden`: a layer of attention or an MLP, with a product for every token; Muon takes it.
    `split`: the ranks of tensor parallelism split its outputs, its inputs, its outputs
    which are then gathered, or its heads; None: each has the whole layer. `heads`: its rows are
    query, key and value of so many heads.
    """

    is_hidden: bool = False
    split: Literal["outputs", "inputs", "gathered", "heads"] | None = None
    heads: int | None = None


_OTHER = Role()


def with_role(layer: Layer, role: Role) -> Layer:
    """Return the layer, which has the role from now on."""
    layer.role = role  # type: ignore[assignment]
    return layer


def hidden(layer: Layer, split: Literal["outputs", "inputs"], *, heads: int | None = None) -> Layer:
    """Return a layer of attention or an MLP."""
    return with_role(layer, Role(is_hidden=True, split=split, heads=heads))


def modulation(layer: Layer) -> Layer:
    """Return a layer that computes shifts, scales and gates of a block."""
    return with_role(layer, Role(split="gathered"))


def role_of(layer: nn.Module) -> Role:
    """Return the role of a layer; one that says nothing has none of its own."""
    role = getattr(layer, "role", _OTHER)
    assert isinstance(role, Role)
    return role


def roles_of(network: nn.Module) -> dict[str, Role]:
    """Return the role of the layer that holds each parameter, by the parameter's name."""
    found = {}
    for prefix, layer in network.named_modules(remove_duplicate=False):
        for name, _ in layer.named_parameters(recurse=False):
            found[f"{prefix}.{name}" if prefix else name] = role_of(layer)
    return found
