"""Data and text: redaction, regular expressions, merging and bounds."""
