"""Manifests of run pods and SparkApplications, and how their ends are judged. Pure."""
