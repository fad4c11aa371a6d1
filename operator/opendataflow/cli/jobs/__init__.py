"""Commands that declare jobs, run them, and change what they do."""
