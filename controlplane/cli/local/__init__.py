"""A cluster on one machine: a private etcd, a coordinator and agents, kept alive by `holdfast run`."""
