"""Test what users install: the wheel, its contents, its dependencies, and the demo without a checkout."""
