"""Chunks (partitions) of a data set: ids, bounds, predicates, plans and attempts. Pure."""
