"""What happened, in words for people: lines of the journal, incidents, quantities. Pure."""
