"""Define the messages between ranks, agent and launcher, one frozen record each.

Both ends encode and decode here. `encode` returns the JSON object of a frame: `op`, then the fields in the
record's order. `decode` reads each field as its annotation says. docs/protocols.md says what each message
means and when it is sent. Standard library only: ranks, launchers and agents import this."""
