"""Keep files that earlier commits wrote: every later version must be able to read them."""
