"""Runs as local process groups. The only place that forks, signals and looks at other processes."""
