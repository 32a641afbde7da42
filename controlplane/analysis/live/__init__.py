"""Judge a job while it runs, from how its ranks report to have spent their steps."""
