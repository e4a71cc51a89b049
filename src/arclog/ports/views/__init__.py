"""What users and readers ask for."""
