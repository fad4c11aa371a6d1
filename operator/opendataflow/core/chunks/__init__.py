"""Chunks (partitions) of a data set: ids, bounds, predicates and plans. Pure."""
