"""Run the trainers of other frameworks through failures: one package or module each.

Each imports its framework when it is imported itself. Nothing here is imported by the rest of Holdfast."""
