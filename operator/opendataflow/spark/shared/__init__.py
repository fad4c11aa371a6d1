"""A JVM that runs share, one after another, as its users see it: how it starts, and how a program uses it."""
