"""Targets of notifications: a command, a webhook, mail.

Each delivers one message, or raises NotDelivered with the reason. A target never decides which notification is sent or
when, and never waits longer than its time-out.
"""
