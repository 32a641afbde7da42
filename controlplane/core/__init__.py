"""The pure decision core: events in, effects out; no clock, no chance, no I/O."""
