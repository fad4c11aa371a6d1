"""Pure rules: no IO, and the time is an argument. Readiness and order are not here: they live in sql/ only."""
