"""Look for one kind of trouble each in a running job: functions over what is remembered of it."""
