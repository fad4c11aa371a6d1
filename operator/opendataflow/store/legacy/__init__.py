"""The old framework's tables and views."""
