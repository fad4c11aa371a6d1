"""Tables, JSON, YAML and the live display. Never reads the database."""
