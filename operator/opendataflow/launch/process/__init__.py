"""Runs as local processes. Only this package forks, sends signals and inspects other processes."""
