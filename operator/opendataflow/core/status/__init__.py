"""Status of resources: conditions, events and the five answers about a chunk. Pure."""
