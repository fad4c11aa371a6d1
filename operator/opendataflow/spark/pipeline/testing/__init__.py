"""Run the unit tests of transformations, and require them before a run."""
