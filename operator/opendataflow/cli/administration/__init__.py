"""Commands for the database, passwords, notifications and the installation."""
