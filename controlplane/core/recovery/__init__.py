"""Choose the strategy of an incident, keep its record, and bring the ranks to the barrier."""
