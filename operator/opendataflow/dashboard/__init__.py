"""The dashboard: pages over the state database for a browser on this machine. It reads, and never changes anything."""
