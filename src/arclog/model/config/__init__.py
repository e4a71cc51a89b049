"""Configuration: settings, kinds, schedules and extras."""
