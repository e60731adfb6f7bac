"""How each command of README and docs is tested: executed here, or by the tests of a named file.

Patterns match whole commands. `EXECUTED` takes neither a cluster nor minutes (test_executed.py, and
test_study_pages.py for what only pages of studies show); `MINUTES` is executed one by one in
test_minutes.py; the other two name the file of tests that carries out a command of that very form.
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
)
_GRIDS = r"layouts|recipes|recipes-small|[a-e]|[a-e]-small"
# Commands that need a cluster, and the tests that run their form on the one-machine Slurm, on a
# fake one, or by the same body without Slurm.
ON_A_CLUSTER = {
    r"sbatch (?:--nodes=2 \S+|\.\.\.) jobs/pretrain\.sbatch \S+": "slurm/test_pretrain.py",
    r"sbatch .*jobs/encode\.sbatch \S+": "jobs/test_encode.py",
    r"sbatch .*jobs/sample\.sbatch logs/RUN num=50000": "docs/test_minutes.py",
    r"sbatch .*jobs/infer\.sbatch logs/RUN": "docs/test_minutes.py",
    r"sbatch .*jobs/finetune\.sbatch configs/finetune/\S+": "slurm/test_finetune.py",
    r"sbatch .*jobs/finetune\.sbatch \S+ engine=aitoolkit": "finetune/aitoolkit/test_run.py",
    r"env/interactive\.sh a100 2": "slurm/test_salloc.py",
    r"python -m launch submit configs/pretrain/\S+ resources\.gpu=a40": "slurm/test_launch.py",
    r"python -m launch submit configs/sample/\S+ run=logs/RUN": "docs/test_executed.py",
    r"python -m launch submit STUDY --local": "launch/submit/test_local.py",
    r"python -m launch submit (?:configs/studies/\S+|STUDY (?!--local$).+)": (
        "slurm/test_studies.py"
    ),
    r"python -m launch submit \S+ \S+=\S+,\S+ .*repeats=3.*": "launch/submit/test_study.py",
    r"python -m launch (?:rerun .+|status\|cancel\|rerun FOLDER)": "slurm/test_studies.py",
    r"python -m launch submit my\.sbatch(?: --.*)?": "slurm/test_own_script.py",
    r"python -m analysis compare last": "launch/script/test_local.py",
    r"python -m launch status last --wait": "slurm/test_tour.py",
    r"python -m launch doctor.*": "slurm/test_doctor.py",
    rf"make study NAME=(?:{_GRIDS})": "slurm/test_five_studies.py",
}
ELSEWHERE = {
    r"tensorboard .+": "jobs/test_body.py",
    r"LOCAL_NODES=2 bash jobs/pretrain\.sbatch \S+": "jobs/test_body.py",
    r"bash jobs/pretrain\.sbatch logs/\S+ train\.steps=1000": "jobs/test_body.py",
    r"python -m launch submit configs/studies/\S+ (?:run=logs/RUN )?--local": (
        "launch/submit/test_local.py"
    ),
    r"python -m launch submit \S+ \S+=\S+,\S+ interleave=\d+ --local": (
        "launch/submit/test_local.py"
    ),
    r"env/create\.sh(?: light)? && source env/activate\.sh": "slurm/test_tour.py",
    r"AI_TOOLKIT=\S+ env/create\.sh ai-toolkit": "env/test_create.py",
    r"AI_TOOLKIT=\S+ python -m pytest .+": "finetune/aitoolkit/test_real_aitoolkit.py",
    r"python -m pytest tests/slurm/test_matrix\.py": "slurm/test_matrix.py",
    r"python -m benchmarks\.public_logs FOLDER .+": "benchmarks/test_public_logs.py",
    r"python -m benchmarks\.public_scripts FOLDER": "benchmarks/test_public_scripts.py",
    r"make gpu|python -m benchmarks\.gpu .+": "benchmarks/test_gpu.py",
    r"python -m pip install .+ wheels/\S+ && export PYTHONPATH=\S+": "benchmarks/test_gpu.py",
    r"python -m pytest tests/train/engine/test_kills\.py": "train/engine/test_kills.py",
}


def matching(command: str, patterns: tuple[str, ...] | dict[str, str]) -> list[str]:
    """The patterns of a class that a command matches whole."""
    return [pattern for pattern in patterns if re.fullmatch(pattern, command)]
