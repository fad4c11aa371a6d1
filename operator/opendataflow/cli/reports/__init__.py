"""Commands that show jobs, tasks, chunks, runs and logs."""
