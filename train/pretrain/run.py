"""One attempt at a pretraining run, from its folder to its last event."""

import contextlib

from configs.checks.batch import Division, divide
from configs.run.folder import RunFolder
from configs.schema import Pretrain
from train.data.loader import Batch, Loading, microbatches
from train.data.source import DataError, Source, held_out_part, open_source, training_part
from train.diffusion.timesteps import Bins
from train.engine.attempt import Attempt, carry_out
from train.engine.checkpoint import Saver, TrainingState, agree_on_newest, load_checkpoint
from train.engine.clocks import Clocks
from train.engine.context import Course, begin_course
from train.engine.distributed import data_rank, process_group
from train.engine.environment import training_facts
from train.engine.loop import Loop
from train.engine.profiler import ProfileWindow
from train.gradient_noise.adaln_gram import AdalnGram
from train.gradient_noise.hooks import make_tap
from train.gradient_noise.online import NoiseWatch
from train.gradient_noise.per_bin import WholeModelNoise
from train.pretrain.evaluation import PretrainingLooks
from train.pretrain.micro_batch import tuned_micro_batch
from train.pretrain.step import PretrainingSteps
from train.pretrain.train_state import Learner, make_learner
from train.pretrain.validation import Validation


def attempt(run: RunFolder, *, number: int) -> int:
    """Carry out an attempt at pretraining; 0 whenever the run folder is in order."""
    return carry_out(run, Pretrain, _run, number=number)


def _run(attempt: Attempt[Pretrain]) -> None:
    config, ranks = attempt.config, attempt.ranks
    clocks = Clocks(ranks.device)
    tuned = tuned_micro_batch(attempt.run, config, ranks, attempt.number)
    division = divide(config, world=ranks.world, tuned=tuned)
    source = open_source(config.data)
    training = _training_images(source, config)
    with process_group(ranks):
        learner, state = _newest(attempt, division, clocks)
        attempt.note(**training_facts(config, division, learner.network))
        course = begin_course(attempt, division=division, state=state, clocks=clocks)
        validation = _validation(course, source)
        noise = _noise(course, learner, training)
        with contextlib.closing(_batches(course, training)) as batches:
            wish = _loop(course, learner, batches, validation, noise).train()
        course.conclude(wish)


def _newest(
    attempt: Attempt[Pretrain], division: Division, clocks: Clocks
) -> tuple[Learner, TrainingState]:
    """What learns, as it was at the newest checkpoint; as it begins where there is none."""
    checkpoint = agree_on_newest(attempt.run.checkpoints)
    learner = make_learner(
        attempt.config, division=division, ranks=attempt.ranks, resumes=checkpoint is not None
    )
    state = learner.state(clocks)
    if checkpoint is not None:
        load_checkpoint(attempt.run.checkpoints / checkpoint, state)
    return learner, state


def _loop(
    course: Course[Pretrain],
    learner: Learner,
    batches: Loading[Batch],
    validation: Validation | None,
    noise: NoiseWatch | None,
) -> Loop[Pretrain]:
    attempt, config = course.attempt, course.attempt.config
    window = ProfileWindow(
        config.profile,
        attempt.run.profile / f"attempt-{attempt.number:03d}",
        rank=attempt.ranks.rank,
        device=attempt.ranks.device,
        clocks=course.clocks,
    )
    return Loop(
        course=course,
        steps=PretrainingSteps(
            course=course, learner=learner, batches=batches, window=window, noise=noise
        ),
        looks=PretrainingLooks(
            course=course, learner=learner, window=window, validation=validation, noise=noise
        ),
        saver=Saver(
            attempt.run.checkpoints,
            keep=config.checkpoint.keep,
            asynchronous=config.checkpoint.asynchronous,
            is_superseded=attempt.is_superseded,
        ),
        window=window,
    )


def _batches(course: Course[Pretrain], training: Source) -> Loading[Batch]:
    ranks, division = course.attempt.ranks, course.division
    return microbatches(
        training,
        course.attempt.config,
        division=division,
        rank=data_rank(ranks, division),
        images=course.state.images,
        pin=ranks.device.type == "cuda",
    )


def _noise(course: Course[Pretrain], learner: Learner, training: Source) -> NoiseWatch | None:
    config, division, ranks = course.attempt.config, course.division, course.attempt.ranks
    if not config.gns.enabled:
        return None
    tap, gram, whole = make_tap(learner.model, learner.network), None, None
    if config.gns.bins is not None:
        gram = AdalnGram(learner.network, bins=Bins(count=config.gns.bins), device=ranks.device)
    if gram and config.gns.whole_every is not None:
        whole = WholeModelNoise(
            training,
            config,
            model=learner.model,
            network=learner.network,
            objective=learner.objective,
            division=division,
            ranks=ranks,
            tap=tap,
            gram=gram,
        )
    return NoiseWatch(
        config, tap=tap, gram=gram, whole=whole, division=division, device=ranks.device
    )


def _training_images(source: Source, config: Pretrain) -> Source:
    training = training_part(source, config.data)
    if len(training) < config.train.global_batch:
        raise DataError(
            f"{len(training)} training images are fewer than train.global_batch "
            f"{config.train.global_batch}"
        )
    return training


def _validation(course: Course[Pretrain], source: Source) -> Validation | None:
    config = course.attempt.config
    if config.validation.every is None:
        return None
    kept = held_out_part(source, config.data)
    if len(kept) == 0:
        raise DataError(f"data.held_out {config.data.held_out} of {len(source)} images keeps none")
    return Validation(kept, config, division=course.division, ranks=course.attempt.ranks)
