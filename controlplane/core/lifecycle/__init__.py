"""Drive each job from phase to phase: submission, launch, incidents, loading, rendezvous, end, takeover."""
