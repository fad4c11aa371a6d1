"""Find the database and the passkey of a program: from the environment, files, or a prompt. Open the database."""
