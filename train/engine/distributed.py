"""The ranks of a run: who they are, the mesh they form, and how they agree."""

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

# What torchrun tells a rank, and a command of its own must not take for its place.
TORCHRUN_VARIABLES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip

# The first step may compile, and compiles at different speeds on different ranks.
_TIMEOUT = datetime.timedelta(minutes=20)


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process among the others, as torchrun placed it."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    device: torch.device


def read_ranks() -> Ranks:
    """The place that torchrun gave to this process; alone without torchrun."""
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
    """All ranks joined, over NCCL for GPU tensors and gloo for CPU ones."""
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
        # Without it one gloo teardown in six aborts, because a peer has already closed.
        dist.barrier()
    finally:
        dist.destroy_process_group()


def bootstrap_store(ranks: Ranks) -> dist.Store:
    """Where ranks leave words for one another, before there is a process group."""
    if ranks.world == 1:
        return dist.HashStore()
    store, _, _ = next(rendezvous("env://", timeout=_TIMEOUT))
    return dist.PrefixStore("ditbench", store)


def broadcast_str_before_init(ranks: Ranks, say: Callable[[], str]) -> str:
    """What rank 0 says, on every rank, before there is a process group.

    Where rank 0 raises `ConfigError`, so do all.
    """
    if ranks.world == 1:
        return say()
    store, _, _ = next(rendezvous("env://", timeout=_TIMEOUT))
    if ranks.rank:
        told = json.loads(store.get("ditbench/told"))
        if told["error"]:
            raise ConfigError(told["error"])
        return str(told["said"])
    said, error = "", None
    try:
        said = say()
    except ConfigError as met:
        error = met
    store.set("ditbench/told", json.dumps({"said": said, "error": error and str(error)}))
    if error:
        raise error
    return said


def data_rank(ranks: Ranks, layout: BatchLayout) -> int:
    """Which share of the images this rank has: the same for the ranks of one tensor group."""
    return ranks.rank // layout.tensor


def make_mesh(layout: BatchLayout, device: torch.device) -> DeviceMesh:
    """The (replicate, shard, tensor) mesh over all ranks; `tensor` are neighbours."""
    shape = (layout.replicate, layout.shard, layout.tensor)
    return init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard", "tensor"))


class Agreement:
    """Ranks agree on the largest vote, one step late, so that no step waits for the answer."""

    def __init__(self) -> None:
        self._pending: tuple[Tensor, dist.Work] | None = None

    def vote(self, mine: int) -> int:
        """Cast this step's vote; return the largest of the step before (0 at first)."""
        agreed = self.settle()
        ballot = torch.tensor([mine])
        work = dist.all_reduce(ballot, op=dist.ReduceOp.MAX, async_op=True)
        assert work is not None
        self._pending = ballot, work
        return agreed

    def settle(self) -> int:
        """The result of the vote under way, if there is one; every rank must ask."""
        if self._pending is None:
            return 0
        ballot, work = self._pending
        work.wait()
        self._pending = None
        return int(ballot.item())


def max_over_ranks(mine: int) -> int:
    """The largest vote of all ranks, here and now; every rank must ask."""
    agreement = Agreement()
    agreement.vote(mine)
    return agreement.settle()


def sum_over_ranks(values: Tensor) -> Tensor:
    """`values` summed over all ranks, in place."""
    dist.all_reduce(values)
    return values


def from_rank_0(thing: object) -> object:
    """What rank 0 passed in."""
    box = [thing]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def from_every_rank(thing: object) -> list[object]:
    """What every rank passed in, in order, on every rank."""
    box: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(box, thing)
    return box


def to_rank_0(thing: object) -> list[object] | None:
    """What every rank passed in, in order, on rank 0; None elsewhere."""
    rank = dist.get_rank()
    box: list[object] | None = [None] * dist.get_world_size() if rank == 0 else None
    dist.gather_object(thing, box, dst=0)
    return box
