"""The lock, the bill of materials, the audit."""
