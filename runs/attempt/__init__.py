"""Open and close attempts at runs; prune cells of studies."""
