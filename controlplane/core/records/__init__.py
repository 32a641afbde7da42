"""Define the frozen records and fixed words that everything else in the core speaks in."""
