"""Diagnose a job from the recorded operations of its steps: replay them, and ask what each part costs."""
