"""Turn a config or a study into jobs in the queue."""
