"""Ask a coordinator to do something: submit, pause, drain, quarantine."""
