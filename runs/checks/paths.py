"""The files that a config names: as absolute paths, and checked before anything is queued."""

from collections.abc import Callable, Iterator
from pathlib import Path

from configs.checks.aitoolkit import arch_of, check_aitoolkit
from configs.checks.captions import fill_trigger
from configs.checks.dataset import check_dataset
from configs.checks.flux import check_flux, weights_in
from configs.checks.lora import check_fits, check_sizes
from configs.errors import ConfigError
from configs.load import read_tree
from configs.paths import config_paths
from configs.schema import Finetune, Infer, Pretrain, Run, keys
from runs.checks.infer import infer_spec
from runs.folder import RunFolder, is_run


def _is_run_of(kind: str) -> Callable[[Path], bool]:
    def is_there(path: Path) -> bool:
        return is_run(path) and read_tree(path / "config.yaml").get("kind", "pretrain") == kind

    return is_there


# By the schema's `path`: its name in messages, and the test for it.
_KINDS: dict[str, tuple[str, Callable[[Path], bool]]] = {
    "folder": ("folder", Path.is_dir),
    "file": ("file", Path.is_file),
    "either": ("file or folder", Path.exists),
    "pretraining run": ("folder of a pretraining run", _is_run_of("pretrain")),
    "fine-tuning run": ("folder of a fine-tuning run", _is_run_of("finetune")),
}


def missing_paths(config: Run) -> Iterator[str]:
    """Yield each path of the config that is missing, or the wrong kind of file, with the fix."""
    spec = keys(config.kind)
    for name, path in config_paths(config).items():
        wanted = spec[name].path
        if wanted in _KINDS:
            word, is_there = _KINDS[wanted]
            if not is_there(Path(path)):
                is_model = isinstance(config, Finetune) and wanted == "either"
                yield f"{name} {path}: {_problem(Path(path), word, is_model=is_model)}"


def check_paths(config: Run) -> None:
    """Raise `ConfigError` if a path of the config is missing, or the wrong kind of file."""
    for problem in missing_paths(config):
        raise ConfigError(problem)
    if isinstance(config, Pretrain):
        trunk = config.train.branch_from
        if trunk and (refusal := _branch_problem(Path(trunk), config)):
            raise ConfigError(f"train.branch_from {trunk}: {refusal}")
    elif isinstance(config, Finetune):
        _check_finetune(config)
    elif isinstance(config, Infer):
        images = infer_spec(config)
        check_flux(images.model)
        check_fits(images.lora, images.model)


def _problem(path: Path, word: str, *, is_model: bool) -> str:
    if word == "file" and path.is_dir():
        inside = sorted(file.name for file in path.glob("*.safetensors"))
        hint = f", such as {inside[0]}" if inside else ""
        return f"a folder, but a file is expected; name the file in it{hint}"
    if is_model:
        return (
            f"no such {word}, and jobs download nothing; on a login node: hf download "
            f"OWNER/{path.name} --local-dir {path}"
        )
    return f"no such {word}; create it or name another"


def _check_finetune(config: Finetune) -> None:
    """Raise `ConfigError` for a model, LoRA, image or prompt that the run would fail on."""
    check_model(config)
    check_dataset(config)
    for prompt in config.sample.prompts:
        fill_trigger(prompt, config.data.trigger)


def check_model(config: Finetune) -> None:
    """Raise `ConfigError` for a model or an assistant LoRA, if it is here, that cannot be used."""
    folder, assistant = Path(str(config.flux.folder)), Path(config.flux.assistant_lora or "")
    if folder.exists() and not arch_of(config):
        check_flux(folder)
        if assistant.is_file():
            check_fits(assistant, folder)
    elif assistant.is_file():
        check_sizes(assistant, weights_in(folder))
    check_aitoolkit(config)


def _branch_problem(checkpoint: Path, config: Pretrain) -> str | None:
    trunk, step = RunFolder(checkpoint.parent.parent), checkpoint.name.removeprefix("step-")
    if not step.isdecimal() or not is_run(trunk.path):
        return "not a checkpoint of a run; name one, such as logs/RUN/checkpoints/step-000001000"
    if int(step) >= config.train.steps:
        return f"train.steps {config.train.steps} ends there; raise it"
    before = trunk.config()
    if not isinstance(before, Pretrain) or _branch_state(before) != _branch_state(config):
        return (
            "its run has another network or optimizer.kind, or only one has an EMA; set model, "
            "data.size, channels and classes, optimizer.kind and train.ema_decay as there"
        )
    return None


def _branch_state(config: Pretrain) -> tuple[object, ...]:
    """Return all that the names and shapes of the state depend on."""
    data, model = config.data, config.model.model_copy(update={"init_from": None})
    sizes = data.size, data.channels, data.classes
    return model, sizes, config.optimizer.kind, config.train.ema_decay is None
