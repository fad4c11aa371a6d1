"""The operator around the engine: custom resources in, statuses, events and figures out. kopf is used only here."""
