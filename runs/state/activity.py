"""The activity of a run between two training steps: saving, evaluating or sampling."""

from collections.abc import Mapping
from typing import Any

from runs.folder import RunFolder
from runs.state.run_state import RunState


def activity(run: RunFolder, state: RunState, config: Mapping[str, Any]) -> str:
    """Return what a run does after the steps that it recorded last, "" while it trains.

    `config` has dotted keys. The order is that of the training loop.
    """
    step, since = state.step, state.after_step
    if step is None or "started" in since or config.get("engine") not in (None, "embedded"):
        return ""  # the record of another program has no such order
    is_last = step == config.get("train.steps")

    def is_due(key: str) -> bool:
        every = config.get(key)
        return is_last or (isinstance(every, int) and step % every == 0)

    is_saved = "saved" in since
    if is_due("checkpoint.every") and not (is_saved or config.get("checkpoint.asynchronous")):
        return "saving"
    if config.get("data.held_out") and is_due("validation.every") and "evaluated" not in since:
        return "evaluating"
    if is_due("sample.every") and not (run.samples / f"step-{step:09d}.png").exists():
        return "sampling"
    return "saving" if is_last and not is_saved else ""
