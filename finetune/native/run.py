"""One attempt at a fine-tuning by the native engine: prepare, resume, train."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from diffusers import FluxTransformer2DModel

from configs.checks.batch import BatchLayout, divide
from configs.schema import Finetune
from finetune.native.base_model import DTYPES, hide_progress_bars, load_transformer
from finetune.native.data import Batches
from finetune.native.encoders import load_vae
from finetune.native.evaluation import FixedNoiseLoss, LoraEvaluator
from finetune.native.inputs import Encoded, RunInputs
from finetune.native.lora import LEARNED, LoraSaver, LoraWeights, add_learned
from finetune.native.pipeline import ImagePipeline
from finetune.native.step import LoraStep, make_optimizer
from train.engine.attempt import Attempt, begin_training
from train.engine.checkpoint import CheckpointState, load_newest
from train.engine.clocks import Clocks
from train.engine.distributed import process_group
from train.engine.environment import versions
from train.engine.loop import Loop
from train.engine.numerics import set_precision

PURPOSES = ("setup", "load", "cache", "train", "data", "save", "sample", "eval")


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """The encoded inputs, the transformer with its LoRA, and a pipeline that samples from it."""

    inputs: RunInputs
    encoded: Encoded
    transformer: FluxTransformer2DModel
    weights: LoraWeights
    pipeline: ImagePipeline


def carry_out(attempt: Attempt[Finetune]) -> None:
    """Carry out an attempt by the native engine."""
    config, ranks = attempt.config, attempt.ranks
    set_precision(config.train.precision, ranks.device)
    hide_progress_bars()
    clocks = Clocks(ranks.device, purposes=PURPOSES)
    layout = divide(config, world=ranks.world)
    with process_group(ranks):
        prepared = _prepare(attempt, clocks)
        attempt.note(**_facts(config, layout, prepared))
        loop = _loop(attempt, layout, prepared, clocks)
        loop.context.finish(loop.train())


def _prepare(attempt: Attempt[Finetune], clocks: Clocks) -> _Prepared:
    """Encode the inputs and load the model, each on its own clock."""
    config, device = attempt.config, attempt.ranks.device
    folder, precision = Path(str(config.flux.folder)), config.train.precision
    inputs = RunInputs(config)
    encoded = inputs.encode(config, clocks, device=device)
    transformer = load_transformer(folder, DTYPES[precision], device=device)
    if config.train.gradient_checkpointing:
        transformer.enable_gradient_checkpointing()
    weights = add_learned(transformer, config.lora, seed=config.seed)
    vae = load_vae(folder, device, DTYPES[precision])
    pipeline = ImagePipeline(transformer, vae, folder)
    clocks.lap("load", drain=True)
    return _Prepared(
        inputs=inputs, encoded=encoded, transformer=transformer, weights=weights, pipeline=pipeline
    )


def _loop(
    attempt: Attempt[Finetune], layout: BatchLayout, prepared: _Prepared, clocks: Clocks
) -> Loop[Finetune]:
    """Return the training loop, resumed from the newest checkpoint if there is one."""
    config, ranks = attempt.config, attempt.ranks
    inputs, encoded, weights = prepared.inputs, prepared.encoded, prepared.weights
    transformer = prepared.transformer
    optimizer = make_optimizer(weights)
    state = CheckpointState(
        network=weights,
        parts=[],
        optimizer=optimizer,
        clocks=clocks,
    )
    load_newest(attempt.run.checkpoints, state)
    context = begin_training(attempt, layout=layout, state=state, clocks=clocks)
    evaluator = LoraEvaluator(
        context=context,
        encoded=encoded,
        prompts=inputs.prompts,
        fixed_noise_losses={
            name: FixedNoiseLoss(transformer, encoded, images, config, ranks=ranks)
            for name, images in (("validation", inputs.training), ("held_out", inputs.held_out))
            if images
        },
        pipeline=prepared.pipeline,
    )
    steps = LoraStep(
        context=context,
        transformer=transformer,
        weights=weights,
        optimizer=optimizer,
        batches=Batches(encoded, inputs, config, layout=layout, rank=ranks.rank),
    )
    saver = LoraSaver(attempt, weights)
    return Loop(context=context, steps=steps, parts=[evaluator], saver=saver)


def _facts(config: Finetune, layout: BatchLayout, prepared: _Prepared) -> dict[str, Any]:
    """Return the facts of this attempt for the manifest."""
    libraries = ("diffusers", "peft", "transformers")
    compute = {"fp32": "float32", "bf16": "bfloat16"}[config.train.precision]
    base = [
        parameter
        for name, parameter in prepared.transformer.named_parameters()
        if LEARNED not in name.split(".")
    ]
    return {
        "engine": "embedded",
        "ranks": layout.world,
        "micro_batch": layout.micro_batch,
        "accumulation": layout.accumulation,
        "images_in_set": len(prepared.inputs.training),
        "images_held_out": len(prepared.inputs.held_out),
        "parameters": sum(parameter.numel() for parameter in prepared.weights.parameters()),
        "base_parameters": sum(parameter.numel() for parameter in base),
        "dtypes": {
            "parameters": "float32",
            "base": compute,
            "gradients": "float32",
            "optimizer": "float32",
            "reduction": "float32",
            "compute": compute,
        },
        "versions": versions() | {name: version(name) for name in libraries},
    }
