"""Statuses and events of custom resources."""
