"""Track nodes and members: what agents report, checked against what is known, and who is lost."""
