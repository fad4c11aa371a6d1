"""The command line: reads arguments, calls one thing below, prints. Sentences for errors, no tracebacks."""
