"""The operator: reads custom resources for the engine, and writes statuses, events and metrics. Only it uses kopf."""
