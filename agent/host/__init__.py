"""Meet the node's operating system: folders, ports, devices, output."""
