"""Who trains a run: ai-toolkit, or the engine in `finetune/native`."""

import os

from configs.run.folder import RunFolder
from configs.schema import Finetune


def engine_of(run: RunFolder, config: Finetune) -> str:
    """`aitoolkit` or `embedded`: what the config says; for `auto`, who trained it before.

    An engine notes itself as `engine` in the manifest, so that a resumed run keeps it. A new
    run of `auto` takes ai-toolkit where `AI_TOOLKIT` names its folder, and one GPU is asked for:
    of several, ai-toolkit would use one.
    """
    if config.engine != "auto":
        return config.engine
    for entry in run.manifest().get("attempts", []):
        if "engine" in entry:
            return str(entry["engine"])
    asked = config.resources
    gpus = asked.nodes * (asked.ranks_per_node or asked.gpus_per_node)
    return "aitoolkit" if os.environ.get("AI_TOOLKIT") and gpus <= 1 else "embedded"
