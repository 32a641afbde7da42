"""Choose a strategy, keep the record of an incident, and bring ranks to the barrier."""
