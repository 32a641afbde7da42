"""Kill processes of one long job at random moments, and verify every checkpoint that it makes."""
