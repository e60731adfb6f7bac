"""Keys of other trainers by the words of their names: what harms is known, or left unknown."""

import pytest

from analysis.foreign_keys import kind_of, place_of

KEYS = {
    "batch": "batch_size bs train_batch_size accum_iter gradient_accumulation_steps "
    "samples_per_gpu IMS_PER_BATCH batchSize mbs per_device_train_batch_size",
    "devices": "num_gpus ngpu ranks distributed.size nproc_per_node world_size gpu_ids "
    "CUDA_VISIBLE_DEVICES trainer.devices nnodes SLURM_NTASKS data_parallel_size",
    "length": "epochs max_steps num_train_epochs SOLVER.MAX_ITER hparams.epochs train_num_steps "
    "total_kimg T_max trainer.max_epochs",
    "objective": "loss loss.type loss._target_ prediction_type snr_gamma kl_weight label_smoothing "
    "noise_schedule timestep_sampling log_snr completion_only_loss "
    "cfg_dropout caption_dropout cond_drop_prob text_dropout",
    "data": "dataset data.root train_data_dir image_size resolution vae tokenizer_name",
    "evaluation": "val_data_dir eval_dataset validation_resolution eval_split val_size dev_file "
    "limit_val_batches max_eval_samples eval_timesteps val_loss_type holdout val_steps test_size",
    "sampling": "num_fid_samples fid_ref cfg_scale guidance_scale num_inference_steps nfe ddim_eta "
    "sampling_steps sample_resolution n_fid",
    "setting": "lr learning_rate weight_decay warmup_steps num_workers eval_steps save_steps "
    "per_device_eval_batch_size sample_every fid_batch_size loss_scale depth "
    "gradient_checkpointing bf16 optimizer.name cache_dataset n_layer model eval_interval "
    "val_check_interval gradient_clip_val validation_steps drop_path log_loss lr_warmup_iters "
    "optimizer._target_ ddp_bucket_cap_mb prediction_loss_only",
    "seed": "seed random_seed data_seed manualSeed seed_everything random_state sampler.seed",
    "name": "output_dir run_name out_dir exp_name work_dir tb_log_dir hydra.run.dir comment",
    "label": "run_id start_time master_port hostname slurm_job_id local_rank device",
    "unknown": "steps iters beta block_size seq_len mask_ratio disc_weight target_type reduction "
    "max_train_samples margin size iter_size in_channels latent_dim ddp_world "
    "lr_decay_iters sample_rate clip_length max_samples "
    "gradient_penalty tokens_per_s teacher_checkpoint depth_weight",
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_is_about_the_most_harmful_of_what_its_words_may_mean(kind):
    found = {key: kind_of(key) for key in KEYS[kind].split()}
    assert found == dict.fromkeys(found, kind)


def test_a_path_names_a_data_set_without_folders_that_all_have():
    assert (
        place_of("/data/imagenet/train") == place_of("/scratch/tmp.123456/imagenet") == "imagenet"
    )
    assert place_of("/data/imagenet/train") != place_of("/data/coco/train")
    assert place_of("imagenet-256") == "imagenet-256"
