"""Custom resources: watches and parses them, and declares them in the store."""
