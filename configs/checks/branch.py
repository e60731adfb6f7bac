"""A run that begins from the state of another run, `train.branch_from`, must have such a state."""

from pathlib import Path

from configs.errors import ConfigError
from configs.run.folder import RunFolder, is_run
from configs.schema import Pretrain


def check_branch(config: Pretrain) -> None:
    """Raise `ConfigError` unless `train.branch_from` is a checkpoint that the config can go on."""
    trunk = config.train.branch_from
    if trunk and (problem := _problem(Path(trunk), config)):
        raise ConfigError(f"train.branch_from {trunk}: {problem}")


def _problem(checkpoint: Path, config: Pretrain) -> str | None:
    trunk, step = RunFolder(checkpoint.parent.parent), checkpoint.name.removeprefix("step-")
    if not step.isdecimal() or not is_run(trunk.path):
        return "not a checkpoint of a run; name one, such as logs/RUN/checkpoints/step-000001000"
    if int(step) >= config.train.steps:
        return f"train.steps {config.train.steps} ends there; raise it"
    before = trunk.config()
    if not isinstance(before, Pretrain) or _state(before) != _state(config):
        return (
            "its run has another network, optimizer.kind or set of averages; set model, data.size, "
            "channels and classes, optimizer.kind and train.ema_decay as there"
        )
    return None


def _state(config: Pretrain) -> tuple[object, ...]:
    """Return all that the names and shapes of the state depend on."""
    data, model = config.data, config.model.model_copy(update={"init_from": None})
    sizes = data.size, data.channels, data.classes
    return model, sizes, config.optimizer.kind, config.averages()
