"""`RunJob ./script ARGS…`: one run of one chunk around an unchanged script, in the foreground.

A program of its own beside the command line: it starts in a moment because it imports little.
"""
