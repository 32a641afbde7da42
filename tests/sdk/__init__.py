"""The session on real ranks, against a small peer that speaks the gate's protocol."""
