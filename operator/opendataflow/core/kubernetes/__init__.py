"""Manifests of run pods and SparkApplications, classification of their ends, rights and definitions. Pure."""
