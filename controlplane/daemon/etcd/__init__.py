"""Everything that meets etcd: client, election, keyspace, records, and a private server for a laptop."""
