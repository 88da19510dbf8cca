"""Where finished rows go: shards, manifest, failures, and the ledger that makes resume exact."""
