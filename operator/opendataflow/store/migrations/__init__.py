"""The schema of the database and the SQL files that define it."""
