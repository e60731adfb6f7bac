"""What every part agrees on: the schema of a config, how it is loaded, and the run folder."""
