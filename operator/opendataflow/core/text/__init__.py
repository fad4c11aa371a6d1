"""Text for people: why a task is not running, the answers of verbs, notifications. Pure."""
