"""Which images a step is made of: whole batches of one size, each image once an epoch."""

from collections.abc import Sequence
from functools import lru_cache

from finetune.native.draws import order


class Order:
    """Batches by step, a pure function of the seed.

    `sizes` holds the latent size of every item (an image at one resolution). A batch holds items
    of one size; what is left of a size at the end of an epoch is filled up with others of it.
    """

    def __init__(self, sizes: Sequence[tuple[int, int]], *, seed: int, global_batch: int) -> None:
        self._sizes, self._seed, self._batch = sizes, seed, global_batch
        groups = {size: sizes.count(size) for size in dict.fromkeys(sizes)}
        self.steps_per_epoch = sum(-(-count // global_batch) for count in groups.values())
        self._epoch = lru_cache(maxsize=2)(self._batches)

    def batch(self, step: int) -> list[int]:
        """The items of a step, from 1."""
        epoch, place = divmod(step - 1, self.steps_per_epoch)
        return self._epoch(epoch)[place]

    def _batches(self, epoch: int) -> list[list[int]]:
        """An epoch: batches as they fill up in a random order of the items, then the rests."""
        whole: list[list[int]] = []
        rests: dict[tuple[int, int], list[int]] = {}
        turns: dict[tuple[int, int], list[int]] = {}
        for item in map(int, order(self._seed, epoch, len(self._sizes))):
            size = self._sizes[item]
            turns.setdefault(size, []).append(item)
            rest = rests.setdefault(size, [])
            rest.append(item)
            if len(rest) == self._batch:
                whole.append(rests.pop(size))
        return whole + [self._filled(rest, turns[size]) for size, rest in rests.items()]

    def _filled(self, rest: list[int], turn: list[int]) -> list[int]:
        return (rest + turn * self._batch)[: self._batch]
