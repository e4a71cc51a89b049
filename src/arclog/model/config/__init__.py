"""What is configured: settings, kinds, schedules and extras."""
