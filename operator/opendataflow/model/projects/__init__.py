"""The models of project.yml."""
