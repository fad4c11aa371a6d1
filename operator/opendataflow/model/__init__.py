"""Models of resources, projects and records: typed, frozen values. No module here decides anything or does IO."""
