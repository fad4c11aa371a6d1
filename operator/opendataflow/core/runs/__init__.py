"""The life of a run: command, environment, outcome, retry, and which job gets a free slot. Pure."""
