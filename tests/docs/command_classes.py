"""How each command of README and docs is tested: executed here, or by a named other test.

Patterns match whole commands. `EXECUTED` takes neither a cluster nor minutes (test_executed.py, and
test_study_pages.py for what only pages of studies show); `MINUTES` is executed one by one in
test_minutes.py; the other two name, as `file::function`, the test that carries out a command of
that very form.
"""

import re

EXECUTED = (
    r"python -m analysis (?!compare last).+",
    r"python -m launch plan (?!\S+ --measure).+",
    r"python -m launch (?:why|tail) .+",
    r"python -m launch check (?!data/imagenet256-sd).+",
    r"python -m launch status(?: (?:logs/|RUN|\[).*)?",
    r"python -m tests\.docs\.render .+",
    r"source env/activate\.sh",
    r"git clone .+",
)
MINUTES = (
    r"make (?:demo|demo-lora|test)",
    r"make study NAME=[a-e]-\w+-small",
    r"bash jobs/(?:pretrain|finetune)\.sbatch configs/.+",
    r"bash jobs/(?:infer|gns|sample)\.sbatch logs/RUN .+",
    r"python -m launch check data/imagenet256-sd",
    r"python -m launch plan \S+ --measure",
    r"python -m train fid .+",
    r"python -m finetune tiny .+",
    r"python -m benchmarks\.block_traffic",
    r"tensorboard .+",
)
# Commands that need a cluster, and the test that runs their form on the one-machine Slurm or a fake
ON_A_CLUSTER = {
    r"sbatch (?:--nodes=2 --gpus-per-node=a40:2|\.\.\.) jobs/pretrain\.sbatch \S+": (
        "tests/slurm/test_pretrain.py::"
        "test_a_warning_of_the_limit_saves_requeues_and_goes_on_to_the_bit"
    ),
    r"sbatch .*jobs/encode\.sbatch \S+": (
        "tests/slurm/test_other_kinds.py::test_images_are_encoded_and_trained_on"
    ),
    r"sbatch .*jobs/sample\.sbatch logs/RUN num=50000": (
        "tests/slurm/test_other_kinds.py::test_a_run_is_sampled_on_two_gpus"
    ),
    r"sbatch .*jobs/infer\.sbatch logs/RUN": (
        "tests/slurm/test_other_kinds.py::test_images_are_drawn_from_a_fine_tuning"
    ),
    r"sbatch .*jobs/finetune\.sbatch configs/finetune/\S+": (
        "tests/slurm/test_finetune.py::"
        "test_a_warned_fine_tuning_saves_is_requeued_and_goes_on_to_the_bit"
    ),
    r"sbatch .*jobs/finetune\.sbatch \S+ engine=aitoolkit": (
        "tests/slurm/test_aitoolkit.py::"
        "test_a_time_limit_saves_and_requeues_it_and_it_goes_on_from_there"
    ),
    r"env/interactive\.sh a100 2": (
        "tests/slurm/test_salloc.py::"
        "test_the_session_is_an_allocation_with_the_environment_activated"
    ),
    r"python -m launch submit configs/pretrain/\S+ resources\.gpu=a40": (
        "tests/slurm/test_launch.py::test_a_launched_run_on_two_nodes_of_two_gpus_reaches_done"
    ),
    r"python -m launch submit configs/sample/\S+ run=logs/RUN": (
        "tests/slurm/test_other_kinds.py::test_the_launcher_submits_a_config_that_names_a_run"
    ),
    r"python -m launch submit STUDY --local": (
        "tests/slurm/test_salloc.py::test_two_runs_take_turns_in_one_allocation"
    ),
    r"python -m launch submit (?:configs/studies/\S+|STUDY (?!--local$).+)": (
        "tests/slurm/test_studies.py::test_every_cell_is_a_job_and_reaches_done"
    ),
    r"python -m launch submit \S+ \S+=\S+,\S+ .*repeats=3.*": (
        "tests/launch/submit/test_study.py::test_several_values_on_a_plain_config_are_a_study"
    ),
    r"python -m launch (?:rerun .+|status\|cancel\|rerun FOLDER)": (
        "tests/slurm/test_studies.py::test_a_study_whose_runs_all_fail_goes_on_with_the_fixed_code"
    ),
    r"python -m launch submit my\.sbatch(?: -- .+)?": (
        "tests/slurm/test_own_script.py::"
        "test_scripts_leave_the_same_output_state_and_exit_code_as_by_plain_sbatch"
    ),
    r"python -m launch submit my\.sbatch --vary .+": (
        "tests/slurm/test_own_script.py::test_one_value_is_varied_in_every_script"
    ),
    r"python -m analysis compare last": (
        "tests/slurm/test_own_script.py::test_runs_of_two_values_are_compared"
    ),
    r"python -m launch submit my\.sbatch --resume=.+": (
        "tests/slurm/test_own_script.py::"
        "test_a_script_near_its_limit_is_requeued_with_its_flags_to_resume"
    ),
    r"python -m launch status last --wait": (
        "tests/slurm/test_tour.py::test_the_first_figure_takes_the_six_lines_of_the_tour"
    ),
    r"python -m launch doctor.*": (
        "tests/slurm/test_doctor.py::test_the_doctor_measures_this_cluster_and_leaves_no_job"
    ),
    r"make study NAME=(?:layouts|recipes|recipes-small|[a-e]|[a-e]-small)": (
        "tests/slurm/test_five_studies.py::test_a_small_study_ends_with_a_report_of_every_grid"
    ),
}
ELSEWHERE = {
    r"LOCAL_NODES=2 bash jobs/pretrain\.sbatch \S+": (
        "tests/jobs/test_body.py::test_a_run_on_two_local_nodes_is_done_and_leaves_a_complete_folder"
    ),
    r"bash jobs/pretrain\.sbatch logs/\S+ train\.steps=1000": (
        "tests/jobs/test_body.py::"
        "test_a_done_run_submitted_again_ends_at_once_and_continues_with_more_steps"
    ),
    r"python -m launch submit configs/studies/\S+ (?:run=logs/RUN )?--local": (
        "tests/launch/submit/test_local.py::test_a_local_study_runs_cell_by_cell_and_gets_a_report"
    ),
    r"python -m launch submit \S+ \S+=\S+,\S+ interleave=\d+ --local": (
        "tests/launch/submit/test_local.py::"
        "test_an_interleaved_study_survives_a_cancel_and_compares_its_rounds"
    ),
    r"env/create\.sh(?: light)? && source env/activate\.sh": (
        "tests/slurm/test_tour.py::test_the_lines_before_a_job_work_in_a_bare_shell"
    ),
    r"AI_TOOLKIT=\S+ env/create\.sh ai-toolkit": (
        "tests/env/test_create.py::"
        "test_an_existing_checkout_gets_a_virtualenv_with_its_requirements"
    ),
    r"AI_TOOLKIT=\S+ python -m pytest .+": (
        "tests/finetune/aitoolkit/test_real_aitoolkit.py::"
        "test_it_trains_from_the_same_yaml_as_the_embedded_engine"
    ),
    r"python -m pytest tests/slurm/test_matrix\.py": (
        "tests/slurm/test_matrix.py::test_a_lost_node_costs_at_most_one_save_interval"
    ),
    r"python -m benchmarks\.public_logs FOLDER .+": (
        "tests/benchmarks/test_public_logs.py::test_the_exit_code_and_table_show_what_is_wrong"
    ),
    r"python -m benchmarks\.public_scripts FOLDER": (
        "tests/benchmarks/test_public_scripts.py::test_output_is_equal_if_the_same_bytes_are_left"
    ),
    r"make gpu|python -m benchmarks\.gpu .+": (
        "tests/benchmarks/test_gpu.py::test_every_piece_is_measured_on_a_cpu_at_tiny_sizes"
    ),
    r"python -m pip install .+ wheels/\S+ && export PYTHONPATH=\S+": (
        "tests/benchmarks/test_gpu.py::test_the_wheels_have_the_versions_of_the_environment"
    ),
    r"python -m pytest tests/train/engine/test_kills\.py": (
        "tests/train/engine/test_kills.py::test_200_kills_change_no_loss"
    ),
}


def matching(command: str, patterns: tuple[str, ...] | dict[str, str]) -> list[str]:
    """The patterns of a class that a command matches whole."""
    return [pattern for pattern in patterns if re.fullmatch(pattern, command)]
