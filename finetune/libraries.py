"""The manners of diffusers, transformers and peft within a job's log."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import diffusers
import transformers

# Said of what is done on purpose: nothing is merged into quantised weights, and the assistant is
# a second adapter.
_EXPECTED = ("TorchaoLoraLinear was instantiated", "Already found a `peft_config` attribute")


def hide_progress_bars() -> None:
    """No bars of loading: in a log each turn of one is a line."""
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()


@contextmanager
def expected_warnings() -> Iterator[None]:
    """Inside the `with`, adding an adapter says nothing of what is known."""
    with warnings.catch_warnings():
        for message in _EXPECTED:
            warnings.filterwarnings("ignore", message=message)
        yield
