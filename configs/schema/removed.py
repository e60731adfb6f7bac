"""Keys and values that older configs may hold and that the schema has no more."""

# By dotted name (`key=value` for a value): what replaced it (`now train.steps`), or why it is gone.
REMOVED: dict[str, str] = {
    "lora.kind=dora": "dora is of ai-toolkit only; set engine=aitoolkit and "
    "aitoolkit.network.type=dora instead",
}
