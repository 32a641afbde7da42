"""Decide who may call: TLS from files, callers by certificate or token, one table of methods and roles."""
