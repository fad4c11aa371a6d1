"""Records of runs, claims, pods, alerts and data sets: frozen values."""
