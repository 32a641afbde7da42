"""Define the messages between ranks and agent, one frozen record each; both ends encode and decode here.

`encode` gives the JSON object of a frame: `op`, then the fields in the record's order. `decode` reads each
field as its annotation says. docs/protocols.md says what each message means and when it is sent. Standard
library only: ranks and agents import this."""
