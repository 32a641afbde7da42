"""Know after how many completed steps the state is clean, and undo half a step."""
