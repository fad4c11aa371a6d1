"""Commands that declare jobs, run them, and change their limits and tasks."""
