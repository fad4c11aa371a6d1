"""The loop that every run's life goes through, over two ports: the store and a launcher."""
