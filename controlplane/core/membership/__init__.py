"""Track nodes and members: what agents report, checked against what is known, and which nodes are lost."""
