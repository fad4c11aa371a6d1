"""What the program remembers about runs, claims, pods and data sets: frozen values."""
