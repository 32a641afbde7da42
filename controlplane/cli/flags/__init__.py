"""Build flags from settings, and settings from flags."""
