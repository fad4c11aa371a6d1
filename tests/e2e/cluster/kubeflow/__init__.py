"""Runs as SparkApplications with the Spark operator of Kubeflow itself, on real nodes."""
