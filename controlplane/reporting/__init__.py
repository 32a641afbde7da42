"""Put into words for people what happened: lines of the journal, incidents, quantities. Pure."""
