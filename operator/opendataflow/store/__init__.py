"""Postgres: the only place that imports psycopg. Calls the functions in sql/ and decides nothing itself."""
