"""Load transformations and run them on frames of Spark or pandas."""
