"""The optimizer of a run and the parameters that it treats alike."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from configs.schema import Pretrain
from train.engine.gradients import local_part
from train.model.roles import roles_of

# The coefficients of the iteration: they bring small singular values fast to between 0.7 and 1.2.
_A, _B, _C = 3.4445, -4.7750, 2.0315
# The root mean square of AdamW's updates (Liu et al.); orthogonal updates have 1 / sqrt(n).
_RMS = 0.2
# The numbers of the matrices that a GPU multiplies at once.
_STACK = 2**25


def make_optimizer(
    model: nn.Module, config: Pretrain, *, beside: Sequence[nn.Parameter] = ()
) -> torch.optim.Optimizer:
    """Return the optimizer of `optimizer.kind`; it also moves the parameters `beside` the model."""
    optimizer = config.optimizer
    adamw: dict[str, Any] = {
        "lr": optimizer.lr,
        "betas": (optimizer.beta1, optimizer.beta2),
        "eps": optimizer.eps,
    }
    groups = parameter_groups(model, config)
    if beside:
        groups.append({"params": list(beside), "weight_decay": 0.0})
    if optimizer.kind == "muon":
        dtype = torch.float32 if config.train.precision in ("fp32", "tf32") else torch.bfloat16
        return Muon(groups, dtype=dtype, fused=True, **adamw)
    return LocalAdamW(groups, fused=True, **adamw)


def parameter_groups(model: nn.Module, config: Pretrain) -> list[dict[str, Any]]:
    """Return the groups of parameters that are treated alike; weight decay is on matrices only.

    Muon moves the matrices of attention and MLP. The modulation stays with AdamW: it has one row
    per image, so that its gradient has no more directions than the batch has images.
    """
    optimizer, is_muon = config.optimizer, config.optimizer.kind == "muon"
    matrices, vectors = list[Tensor](), list[Tensor]()
    moved = dict[int | None, list[Tensor]]({None: []})
    roles = roles_of(model)
    for name, parameter in model.named_parameters():
        role = roles[name]
        if parameter.ndim < 2:
            vectors.append(parameter)
        elif is_muon and role.is_hidden:
            moved.setdefault(role.heads, []).append(parameter)
        else:
            matrices.append(parameter)
    decayed: dict[str, Any] = {"weight_decay": optimizer.weight_decay}
    groups = [{"params": matrices, **decayed}, {"params": vectors, "weight_decay": 0.0}]
    if is_muon:
        decayed |= {"momentum": optimizer.momentum}
        groups += [{"params": some, "heads": heads, **decayed} for heads, some in moved.items()]
    return groups


class LocalAdamW(torch.optim.AdamW):
    """AdamW that steps on each rank's parts: DTensors take twice the CPU time to start a step."""

    def _init_group(self, group: dict[str, Any], *lists: list[Tensor]) -> bool:
        has_complex: bool = super()._init_group(group, *lists)
        for tensors in lists:
            tensors[:] = [local_part(tensor) for tensor in tensors]
        return has_complex


class Muon(LocalAdamW):
    """Muon on the groups that have a `momentum`, AdamW on the others.

    Such a group holds matrices; with `heads`, each is the `qkv` of an attention with that number of
    heads, and its queries, keys and values are three matrices. The iteration runs in `dtype`.
    Source: Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon/), with the scale of an
    update of Liu et al. 2025 (arXiv 2502.16982). `torch.optim.Muon` has the same update, but in
    bf16 whatever the precision, on fused queries, keys and values, and on every rank.
    """

    def __init__(self, groups: list[dict[str, Any]], *, dtype: torch.dtype, **adamw: Any) -> None:
        super().__init__([{"momentum": None, **group} for group in groups], **adamw)
        self._dtype = dtype
        self._groups = [group for group in self.param_groups if group["momentum"] is not None]
        for parameter in (p for group in self._groups for p in group["params"]):
            self.state[parameter] = {"momentum": torch.zeros_like(parameter)}

    def _init_group(self, group: dict[str, Any], *lists: list[Tensor]) -> bool:
        return group["momentum"] is None and super()._init_group(group, *lists)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step of AdamW, then one of Muon. Collective."""
        super().step(closure)
        for group in self._groups:
            self._step_group(group)

    def _step_group(self, group: dict[str, Any]) -> None:
        """Turn the gradients into momentum with Nesterov's look-ahead, and step along it."""
        gradients = [local_part(parameter.grad) for parameter in group["params"]]
        momenta = [local_part(self.state[parameter]["momentum"]) for parameter in group["params"]]
        if hasattr(self, "grad_scale"):
            torch._foreach_div_(gradients, self.grad_scale)
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        torch._foreach_lerp_(gradients, momenta, group["momentum"])
        for parameter, update in self._updates(group["params"], heads=group["heads"]):
            size = parameter.shape[1] if group["heads"] else max(parameter.shape)
            weight = local_part(parameter)
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            weight.add_(update, alpha=-group["lr"] * _RMS * size**0.5)

    def _updates(
        self, parameters: list[nn.Parameter], *, heads: int | None
    ) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Yield each parameter and this rank's part of its orthogonalised gradient.

        In a round, each rank computes equally many matrices of one shape, and one message gathers
        them all.
        """
        ranks, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)
        for some in _rounds(parameters, ranks):
            own, mine = -(-len(some) // ranks), list[Tensor]()
            for number, parameter in enumerate(some):
                whole: Any = parameter.grad
                whole = whole.full_tensor() if isinstance(whole, DTensor) else whole
                if number // own == rank:
                    mine.append(split_heads(whole.to(self._dtype), heads))
            found = local_part(some[0]).new_zeros((own, *some[0].shape), dtype=self._dtype)
            if mine:
                done = orthogonalized(torch.stack(mine))
                for place, matrices in zip(found, done, strict=False):
                    place.copy_(join_heads(matrices, heads))
            updates = found
            if ranks > 1:
                updates = found.new_empty((ranks * own, *found.shape[1:]))
                dist.all_gather_into_tensor(updates, found)
            for parameter, update in zip(some, updates, strict=False):
                if isinstance(parameter, DTensor):
                    replicated = DTensor.from_local(update, parameter.device_mesh)
                    update = replicated.redistribute(placements=parameter.placements).to_local()
                yield parameter, update


def _rounds(parameters: list[nn.Parameter], ranks: int) -> Iterator[list[nn.Parameter]]:
    """Yield parameters of one shape, at most as many for each rank as `_STACK` numbers hold."""
    shapes: dict[torch.Size, list[nn.Parameter]] = {}
    for parameter in parameters:
        shapes.setdefault(parameter.shape, []).append(parameter)
    for shape, equal in shapes.items():
        # Small products do not fill a GPU; a CPU gains nothing from stacks.
        stacked = max(1, _STACK // shape.numel()) if equal[0].is_cuda else 1
        for first in range(0, len(equal), ranks * stacked):
            yield equal[first : first + ranks * stacked]


def orthogonalized(matrices: Tensor) -> Tensor:
    """Return about U V^T of each matrix U S V^T of `matrices` `[..., m, n]`, in their type.

    Five Newton-Schulz iterations of degree 5: singular values become 0.7 to 1.2, not 1.
    """
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if is_tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x.mT if is_tall else x


def split_heads(qkv: Tensor, heads: int | None) -> Tensor:
    """Return `qkv` `[3 d, d]`, its rows ordered by head, as `[3, d, d]`; any other as it is."""
    return qkv.unflatten(0, (heads, 3, -1)).transpose(0, 1).flatten(1, 2) if heads else qkv


def join_heads(matrices: Tensor, heads: int | None) -> Tensor:
    """Undo `split_heads`."""
    return matrices.unflatten(1, (heads, -1)).transpose(0, 1).flatten(0, 2) if heads else matrices
