"""The dashboard: pages over the state database for a browser on this machine, and forms that act like commands."""
