"""The database schema: its SQL files and its migration."""
