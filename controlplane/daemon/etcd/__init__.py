"""Talk to etcd: client, election, keys, records, and a private server for laptops."""
