"""Meet the node's operating system: folders, arena files, ports, devices, output."""
