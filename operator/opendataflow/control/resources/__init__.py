"""Custom resources: watched, parsed, and declared in the store."""
