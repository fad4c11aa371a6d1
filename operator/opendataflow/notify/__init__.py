"""Where notifications go: a command, a webhook, mail. Each delivers one message and says why where it could not.

It never decides what is told or when, and never waits longer than its time-out.
"""
