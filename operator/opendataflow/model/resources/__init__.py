"""The models of custom resources and job files, their statuses, and their definitions for API servers."""
