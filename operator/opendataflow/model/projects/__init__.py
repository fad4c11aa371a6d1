"""The models of project.yml: pipelines, databases and expectations."""
