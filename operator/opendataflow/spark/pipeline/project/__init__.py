"""The folder of a project: found, fetched, read. No code of the project is executed."""
