"""A run that begins from the state of another run, `train.branch_from`, must have such a state."""

from pathlib import Path

from configs.errors import ConfigError
from configs.run.folder import RunFolder, is_run
from configs.schema import Pretrain


def check_branch(config: Pretrain) -> None:
    """Raise `ConfigError` unless `train.branch_from` is a checkpoint that the config can go on."""
    if config.train.branch_from is None:
        return
    path = Path(config.train.branch_from)
    trunk, (word, _, step) = RunFolder(path.parent.parent), path.name.partition("-")
    if word != "step" or not step.isdecimal() or not is_run(trunk.path):
        raise ConfigError(
            f"train.branch_from {path}: not a checkpoint of a pretraining run; name one, such as "
            "logs/RUN/checkpoints/step-000001000"
        )
    if int(step) >= config.train.steps:
        raise ConfigError(
            f"train.branch_from {path}: train.steps {config.train.steps} ends there; raise it"
        )
    before = trunk.config()
    if not isinstance(before, Pretrain) or _state(before) != _state(config):
        raise ConfigError(
            f"train.branch_from {path}: its run has another network, optimizer.kind or number of "
            "averages; set model, data.size, channels and classes, optimizer.kind and "
            "train.ema_decay as there"
        )


def _state(config: Pretrain) -> tuple[object, ...]:
    """Return all that the names and shapes of the state depend on."""
    data, model = config.data, config.model.model_copy(update={"init_from": None})
    shapes = (data.size, data.channels, data.classes)
    return model, shapes, config.optimizer.kind, config.train.ema_decay is None
