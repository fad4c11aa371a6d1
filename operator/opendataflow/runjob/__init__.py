"""`RunJob ./script ARGS…`: runs one chunk around an unchanged script, in the foreground.

It is a separate program beside the command line and imports little, so that it starts fast.
"""
