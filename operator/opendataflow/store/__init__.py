"""The client of the state database: calls the functions in sql/ and makes no decisions itself."""
