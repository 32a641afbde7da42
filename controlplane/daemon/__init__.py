"""The coordinator's shells: what meets clocks, sockets, etcd and people."""
