"""Slurm's reasons why a job waits, in words."""

import re

_REASONS = {
    "": "Slurm has not looked at it yet",
    "None": "Slurm has not looked at it yet",
    "Resources": "it is next, and waits for free nodes",
    "Priority": "jobs with a higher priority go first",
    "Dependency": "after another job",
    "DependencyNeverSatisfied": "the job that it waits for has failed: it never begins",
    "AssocGrpJobsLimit": "as many jobs run as its account or this cluster allows at once",
    "BeginTime": "its begin time has not come, as after a requeue",
    "ReqNodeNotAvail": "a node that it asks for is down or reserved",
    "PartitionTimeLimit": "it asks for more time than its partition allows: it never begins",
    "PartitionNodeLimit": "it asks for more nodes than its partition allows: it never begins",
    "JobHeldUser": "a user holds it (scontrol release)",
    "JobHeldAdmin": "an administrator holds it",
}


def in_words(reason: str) -> str:
    """Return a reason in words; one that is not known is split into its words."""
    name = reason.partition(",")[0].strip("() ")
    split = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name)
    return _REASONS.get(name, split)
