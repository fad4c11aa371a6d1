"""Unit tests of transformations, and the gate that requires them before a run."""
