"""The command line `holdfast`: run and submit jobs, start daemons, query a coordinator, show the demo."""
