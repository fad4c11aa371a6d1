"""Which database a program works with, and with whose passkey: from the environment, files, or a person."""
