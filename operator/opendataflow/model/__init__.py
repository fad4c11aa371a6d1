"""What users write and what the program remembers: typed, frozen values. Nothing here decides or does IO."""
