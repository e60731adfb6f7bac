"""Configs that ai-toolkit would ignore or lose are refused before anything is queued."""

import tempfile
from pathlib import Path
from typing import Any

import pytest

from configs.checks.aitoolkit import check_aitoolkit, remarks
from configs.checks.aitoolkit_example import example
from configs.checks.aitoolkit_source import architectures
from configs.checks.batch import check_ranks
from configs.errors import ConfigError
from configs.load import load
from configs.schema import Finetune
from finetune.aitoolkit.config import Workspace, toolkit_config
from tests.finetune.aitoolkit_runs import finetune_config, make_toolkit


@pytest.fixture(autouse=True)
def kit(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout with a little source, which AI_TOOLKIT names."""
    folder = make_toolkit(tmp_path_factory.mktemp("home") / "kit")
    monkeypatch.setenv("AI_TOOLKIT", str(folder))
    return folder


def config(passed: dict[str, Any], **changes: Any) -> Finetune:
    return finetune_config(aitoolkit=passed, **changes)


def process(config: Finetune) -> dict[str, Any]:
    """Return the process section of the config that ai-toolkit gets."""
    workspace = Workspace(output=Path("o"), database=Path("d"), dataset=Path("i"))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "0.png").touch()
        data = config.data.model_copy(update={"folder": folder})
        filled = config.model_copy(update={"data": data})
        (found,) = toolkit_config(filled, workspace, start=0, attempt=1)["config"]["process"]
    return dict(found)


def test_keys_that_only_ai_toolkit_has_pass() -> None:
    passed = {
        "performance_log_every": 50,
        "train": {"noise_offset": 0.1, "cache_text_embeddings": True},
        "model": {"low_vram": True},
        "datasets": {"flip_y": True},
    }
    check_aitoolkit(config(passed))


@pytest.mark.parametrize(
    ("passed", "message"),
    [
        ({"train": {"noise_ofset": 1}}, "did you mean aitoolkit.train.noise_offset?"),
        ({"low_vram": True}, "did you mean aitoolkit.model.low_vram?"),
        ({"train": {"steps": 5}}, "aitoolkit.train.steps: remove it and set train.steps"),
        ({"training_seed": 5}, "aitoolkit.training_seed: remove it and set seed"),
        ({"train": 5}, "aitoolkit.train: expected keys and values, found 5"),
        ({"dataset": {}}, "aitoolkit.dataset: ai-toolkit has no such key"),
    ],
)
def test_an_unknown_key_and_one_of_ours_are_refused_with_the_fix(
    passed: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_aitoolkit(config(passed))
    assert message in str(refused.value)


def test_what_only_ai_toolkit_has_is_refused_for_the_native_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = r"only ai-toolkit has this, .* set engine=aitoolkit in a new run"
    asked: dict[str, Any] = {"network": {"type": "lokr"}}
    check_ranks(config(asked), world=1)
    with pytest.raises(ConfigError, match=told):  # a run that the native engine began
        check_ranks(config(asked), world=1, engine="embedded")
    monkeypatch.delenv("AI_TOOLKIT")
    with pytest.raises(ConfigError, match=told):
        check_ranks(config(asked), world=1)
    check_ranks(config(asked, engine="aitoolkit"), world=1)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"optimizer": {"decay": 0.5}}, "optimizer.decay: ai-toolkit decays over the whole"),
        ({"optimizer": {"decay": 1.0, "warmup_steps": 9}}, "optimizer.warmup_steps: ai-toolkit"),
        ({"optimizer": {"decay": 1.0, "decay_shape": "sqrt"}}, "optimizer.decay_shape: ai-toolkit"),
    ],
)
def test_a_setting_that_it_has_no_equal_of_is_refused_by_the_name_of_its_key(
    keys: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = {"folder": str(tmp_path)}
    with pytest.raises(ConfigError) as refused:
        check_aitoolkit(config({}, engine="aitoolkit", data=folder, **keys))
    assert message in str(refused.value)
    assert "set engine=embedded" in str(refused.value)
    check_aitoolkit(config({}, engine="embedded", data=folder, **keys))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, {"lr_scheduler": "constant", "lr_scheduler_params": {}}),
        (
            {"warmup_steps": 9},
            {
                "lr_scheduler": "constant_with_warmup",
                "lr_scheduler_params": {"num_warmup_steps": 9},
            },
        ),
        (
            {"decay": 1.0, "decay_shape": "cosine", "decay_to": 0.1, "lr": 1e-3},
            {"lr_scheduler": "cosine", "lr_scheduler_params": {"eta_min": 1e-4}},
        ),
        (
            {"decay": 1.0},
            {
                "lr_scheduler": "linear",
                "lr_scheduler_params": {"start_factor": 1.0, "end_factor": 0.0},
            },
        ),
    ],
)
def test_a_schedule_that_it_has_is_passed_on(keys: dict[str, Any], expected: object) -> None:
    found = process(config({}, engine="aitoolkit", optimizer=keys))["train"]
    assert {name: found[name] for name in ("lr_scheduler", "lr_scheduler_params")} == expected


# Samples of another model than FLUX.1-schnell.
SAMPLE = {"prompts": ["a"], "steps": 30, "guidance": 4.0}
REPLACING: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({"network": {"network_kwargs": {}}}, {"lora": {"targets": "attention"}}, "lora.targets", ""),
    ({"model": {"arch": "flux2"}}, {"lora": {"targets": "blocks"}}, "lora.targets", "blocks"),
]


@pytest.mark.parametrize(("passed", "own", "key", "value"), REPLACING)
def test_a_key_of_its_own_replaces_one_of_ours_that_has_its_default(
    passed: dict[str, Any], own: dict[str, Any], key: str, value: str, tmp_path: Path
) -> None:
    keys = {"engine": "aitoolkit", "data": {"folder": str(tmp_path)}, "sample": SAMPLE}
    with pytest.raises(ConfigError, match=rf"replaces .*{key}, which is {value}.*: remove one"):
        check_aitoolkit(config(passed, **own | keys))
    alone = config(passed, **keys)
    check_aitoolkit(alone)
    for group, values in passed.items():
        for name, given in values.items():
            assert process(alone)[group][name] == given


def test_another_model_or_optimizer_gets_no_settings_of_ours_that_are_meant_for_flux_or_adamw() -> (
    None
):
    found = process(config({"model": {"arch": "flux2"}, "train": {"optimizer": "lion"}}))
    assert "is_flux" not in found["model"]
    assert "network_kwargs" not in found["network"]
    assert "optimizer_params" not in found["train"]
    assert process(config({"model": {"qtype": "uint4"}}))["model"]["quantize"] is True


def other(arch: str, folder: Path, **changes: Any) -> Finetune:
    """Return a config for a kind of model of ai-toolkit, in an empty folder."""
    keys = {"data": {"folder": str(folder)}, "flux": {"folder": str(folder / "none")}}
    keys |= {"sample": SAMPLE}
    return config({"model": {"arch": arch}}, engine="aitoolkit", **keys | changes)


def test_a_model_that_its_source_does_not_name_is_refused(tmp_path: Path) -> None:
    check_aitoolkit(other("flux2:small", tmp_path))
    check_aitoolkit(other("sdxl", tmp_path))
    with pytest.raises(ConfigError, match=r"arch flux3: .* would take it for Stable Diffusion 1; "
                       r"did you mean flux2"):  # fmt: skip
        check_aitoolkit(other("flux3", tmp_path))


def test_another_model_needs_its_own_steps_and_guidance(tmp_path: Path) -> None:
    for sample in ({"prompts": ["a"]}, {"prompts": ["a"], "steps": 9}):
        with pytest.raises(ConfigError, match=r"default is for FLUX\.1-schnell; set sample\.steps"):
            check_aitoolkit(other("zimage:turbo", tmp_path, sample=sample))


def test_a_model_folder_without_whole_weights_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "transformer").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"model: holds no weights .* hf download"):
        check_aitoolkit(other("flux2", tmp_path, flux={"folder": str(model)}))
    (model / "transformer" / "a.safetensors").write_bytes(b"x")
    with pytest.raises(ConfigError, match="not a safetensors file"):
        check_aitoolkit(other("flux2", tmp_path, flux={"folder": str(model)}))


def test_what_a_kind_of_model_loads_is_what_its_classes_name(kit: Path) -> None:
    found = architectures(kit)
    of_flux2 = {"mistralai/Mistral-Small", "owner/flux-vae"}
    assert found["flux2"] == of_flux2
    assert found["flux2_klein"] == {"Qwen/Qwen3", "owner/klein-vae", *of_flux2}
    assert found["zimage"] == found["sdxl"] == frozenset()


def test_hub_ids_that_are_not_in_the_cache_are_named_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "hub" / "models--owner--flux-vae" / "snapshots").mkdir(parents=True)
    (note,) = remarks(other("flux2", tmp_path))
    assert "hf download mistralai/Mistral-Small" in note
    assert not list(remarks(config({}, engine="aitoolkit")))


def test_an_example_holds_the_settings_of_ai_toolkits_own_interface(tmp_path: Path) -> None:
    text = example("zimage:turbo")
    assert "# hf download ostris/adapter v2.safetensors --local-dir models/adapter\n" in text
    (tmp_path / "z.yaml").write_text(text)
    found = load(tmp_path / "z.yaml")
    check_aitoolkit(found)
    assert (found.flux.folder, found.flux.assistant_lora) == (
        "models/Z-Image-Turbo",
        "models/adapter/v2.safetensors",
    )
    sample = found.sample
    assert (sample.steps, sample.guidance, sample.width) == (9, 4, 1024)
    assert found.aitoolkit == {
        "model": {
            "arch": "zimage:turbo",
            "quantize": True,
            "model_kwargs": {"match_target_res": False},
        },
        "datasets": {"flip_x": True},
        "train": {"timestep_type": "weighted"},
    }
    with pytest.raises(ConfigError, match=r"sets nothing for it; it knows zimage:turbo"):
        example("?")


def test_images_held_out_are_not_evaluated_without_their_control_images(tmp_path: Path) -> None:
    keys = {"engine": "aitoolkit", "data": {"folder": str(tmp_path)}}
    passed = {"datasets": {"control_path": "/before"}}
    check_aitoolkit(config(passed, **keys))
    for number in range(2):
        (tmp_path / f"{number}.png").touch()
    with pytest.raises(ConfigError, match=r"without the ones in aitoolkit\.datasets\.control_path"):
        check_aitoolkit(config(passed, validation={"held_out": 1}, **keys))


def test_each_resume_with_an_average_is_a_remark() -> None:
    passed = {"train": {"ema_config": {"use_ema": True, "ema_decay": 0.99}}}
    (remark,) = remarks(config(passed, engine="aitoolkit"))
    assert "each resume loses the steps it lags behind" in remark
    assert process(config(passed))["train"]["ema_config"] == passed["train"]["ema_config"]
