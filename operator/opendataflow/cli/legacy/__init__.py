"""Commands for users of the old framework."""
