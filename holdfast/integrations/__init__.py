"""Run the trainers of other frameworks through failures: one package or module for each framework.

Each imports its framework when it is imported itself, and nothing else of Holdfast imports it."""
