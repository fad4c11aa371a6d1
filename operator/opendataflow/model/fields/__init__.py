"""Types of fields, rules and validation errors that all models share."""
