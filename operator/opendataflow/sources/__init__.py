"""Databases of users, looked at in order to plan chunks of their tables. Nothing here ever writes to them."""
