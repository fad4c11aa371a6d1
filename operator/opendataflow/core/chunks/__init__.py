"""Chunks of a data set: their ids, bounds, predicates and plans. Pure."""
