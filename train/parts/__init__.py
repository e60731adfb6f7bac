"""Parts of a pretraining beside its steps: each module here makes one part, or none.

A module has `make(training) -> Part | None`. No other module names them: to add a part, add a file
(CONTRIBUTING.md has an example).
"""

import importlib
import pkgutil
from dataclasses import dataclass

from configs.schema import Pretrain
from train.data.source import Source
from train.engine.attempt import Attempt, TrainingContext
from train.engine.part import Part
from train.pretrain.train_state import TrainState


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """The `context`, the state of a training and its data, which a part may use.

    `source` are all examples, `images` are those to train on.
    """

    context: TrainingContext[Pretrain]
    train_state: TrainState
    source: Source
    images: Source

    @property
    def attempt(self) -> Attempt[Pretrain]:
        """The attempt, with the config and this rank."""
        return self.context.attempt


def make_parts(training: Pretraining) -> list[Part]:
    """Return the parts that the config asks for, in their order."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    made = [importlib.import_module(f"{__name__}.{name}").make(training) for name in names]
    return sorted((part for part in made if part is not None), key=lambda part: part.order)
