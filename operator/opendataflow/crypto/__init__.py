"""Ciphertexts and secrets: seal, open, hide. Pure: keys and randomness are arguments; nothing is read or printed."""
