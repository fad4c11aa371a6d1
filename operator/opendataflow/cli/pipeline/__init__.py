"""`dataflow pipeline`: projects of unit-tested transformations."""
