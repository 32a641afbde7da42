"""Run the shell around the core: everything that meets clocks, sockets, etcd and people."""
