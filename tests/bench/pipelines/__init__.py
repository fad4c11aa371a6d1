"""How fast pipelines are beside scripts that are written by hand for the same work."""
