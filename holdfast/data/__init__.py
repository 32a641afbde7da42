"""Which samples a step consumes, how uneven shares are weighted, and the ledger of both."""
