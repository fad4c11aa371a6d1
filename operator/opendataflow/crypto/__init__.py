"""Encryption of passwords, and redaction of secrets in texts.

Pure: keys and random bytes are arguments. Nothing here reads or prints.
"""
