"""Check offline that what a user has is sound: `ditbench check`."""
