"""The ranks of a run: their placement by torchrun, the device mesh, and small collectives."""

import datetime
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.rendezvous import rendezvous

from configs.checks.batch import BatchLayout
from configs.errors import ConfigError

# The variables that torchrun sets for a rank. A child process that is no rank must not see them.
TORCHRUN_VARIABLES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip

# The first step may compile, and ranks compile at different speeds.
_TIMEOUT = datetime.timedelta(minutes=20)


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process's rank, the world size and the device."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    device: torch.device


def read_ranks() -> Ranks:
    """Return the placement that torchrun gave this process; without torchrun, one rank alone."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    cuda = torch.cuda.is_available()
    if cuda and local_rank >= torch.cuda.device_count():
        raise ValueError(
            f"local rank {local_rank} has no GPU: {torch.cuda.device_count()} are visible"
        )
    return Ranks(
        rank=int(os.environ.get("RANK", "0")),
        world=int(os.environ.get("WORLD_SIZE", "1")),
        local_rank=local_rank,
        local_world=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        device=torch.device("cuda", local_rank) if cuda else torch.device("cpu"),
    )


@contextmanager
def process_group(ranks: Ranks) -> Iterator[None]:
    """Join all ranks in a process group: NCCL for GPU tensors, gloo for CPU tensors."""
    if ranks.device.type == "cuda":
        torch.cuda.set_device(ranks.device)
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0")):
        os.environ.setdefault(name, value)
    store = dist.HashStore() if ranks.world == 1 else None
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if ranks.device.type == "cuda" else "gloo",
        timeout=_TIMEOUT,
        rank=ranks.rank,
        world_size=ranks.world,
        store=store,
    )
    try:
        yield
        # Without a barrier one gloo teardown in six aborts, because a peer has already closed.
        dist.barrier()
    finally:
        dist.destroy_process_group()


def bootstrap_store(ranks: Ranks) -> dist.Store:
    """Return a key-value store that all ranks share before there is a process group."""
    if ranks.world == 1:
        return dist.HashStore()
    store, _, _ = next(rendezvous("env://", timeout=_TIMEOUT))
    return dist.PrefixStore("ditbench", store)


def broadcast_str_before_init(ranks: Ranks, make: Callable[[], str]) -> str:
    """Return rank 0's `make()` on every rank, before there is a process group.

    If it raises `ConfigError` on rank 0, every rank raises it.
    """
    store = bootstrap_store(ranks)
    if ranks.rank:
        answer = json.loads(store.get("broadcast"))
        if answer["error"]:
            raise ConfigError(answer["error"])
        return str(answer["value"])
    try:
        value = make()
    except ConfigError as error:
        store.set("broadcast", json.dumps({"value": "", "error": str(error)}))
        raise
    store.set("broadcast", json.dumps({"value": value, "error": None}))
    return value


def data_rank(ranks: Ranks, layout: BatchLayout) -> int:
    """Return the number of this rank's share of the images; a tensor group has one share."""
    return ranks.rank // layout.tensor


def make_mesh(layout: BatchLayout, device: torch.device) -> DeviceMesh:
    """Return the (replicate, shard, tensor) mesh over all ranks; `tensor` varies fastest."""
    shape = (layout.replicate, layout.shard, layout.tensor)
    return init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard", "tensor"))


class Agreement:
    """The largest vote of all ranks, one step late, so that no step waits for the result."""

    def __init__(self) -> None:
        self._pending: tuple[Tensor, dist.Work] | None = None

    def vote(self, mine: int) -> int:
        """Cast this step's vote; return the result of the step before (0 at first). Collective."""
        agreed = self.settle()
        ballot = torch.tensor([mine])
        work = dist.all_reduce(ballot, op=dist.ReduceOp.MAX, async_op=True)
        assert work is not None
        self._pending = ballot, work
        return agreed

    def settle(self) -> int:
        """Return the result of the vote in progress, or 0 if there is none. Collective."""
        if self._pending is None:
            return 0
        ballot, work = self._pending
        work.wait()
        self._pending = None
        return int(ballot.item())


def max_over_ranks(mine: int) -> int:
    """Return the largest value of all ranks. Collective."""
    agreement = Agreement()
    agreement.vote(mine)
    return agreement.settle()


def sum_over_ranks(values: Tensor) -> Tensor:
    """Sum `values` over all ranks, in place. Collective."""
    dist.all_reduce(values)
    return values


def from_rank_0(thing: object) -> object:
    """Return rank 0's argument on every rank. Collective."""
    box = [thing]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def from_every_rank(thing: object) -> list[object]:
    """Return the arguments of all ranks, in order, on every rank. Collective."""
    box: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(box, thing)
    return box


def to_rank_0(thing: object) -> list[object] | None:
    """Return the arguments of all ranks, in order, on rank 0; None on the others. Collective."""
    rank = dist.get_rank()
    box: list[object] | None = [None] * dist.get_world_size() if rank == 0 else None
    dist.gather_object(thing, box, dst=0)
    return box
