"""The command line: `holdfast run`, the daemons by hand, the questions to a coordinator, the demo."""
