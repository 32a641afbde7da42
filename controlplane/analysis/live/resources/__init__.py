"""Remember what the hosts of a job have and use: memory, disks, CPU, storages."""
