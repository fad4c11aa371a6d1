"""`dataflow pipeline`: commands for projects of unit-tested transformations."""
