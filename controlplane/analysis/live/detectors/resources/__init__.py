"""Detect what runs out or is too slow on hosts: memory, disks, storages."""
