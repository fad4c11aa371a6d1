"""Sentences for people: why a task is blocked, the answers of verbs, notifications. Pure."""
