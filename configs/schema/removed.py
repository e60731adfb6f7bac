"""Keys that older configs may hold and that the schema has no more."""

# By dotted name: what replaced it (`now train.steps`), or why it is gone.
REMOVED: dict[str, str] = {}
