"""From a config or a study to jobs in the queue."""
