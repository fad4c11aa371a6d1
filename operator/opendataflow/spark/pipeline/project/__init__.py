"""Find, fetch and read the folder of a project. No code of the project is executed."""
