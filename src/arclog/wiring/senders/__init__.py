"""What is sent when a run ends."""
