"""Databases of users: their SQL for reading and writing chunks, their addresses, and attempts to write. Pure."""
