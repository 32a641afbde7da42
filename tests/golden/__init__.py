"""What an earlier commit wrote, kept as files: every later version has to read it."""
