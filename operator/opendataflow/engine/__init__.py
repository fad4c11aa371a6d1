"""The engine: one loop that claims, starts, watches, completes and releases runs, over the store and a launcher."""
