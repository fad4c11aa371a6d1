"""Checks of rights, custom resource definitions and namespaces."""
