"""Who may call: TLS from files, callers by certificate or token, and one table of what each role may do."""
