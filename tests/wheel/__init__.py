"""What is installed elsewhere: the wheel, its contents, its dependencies, and the demo without a checkout."""
