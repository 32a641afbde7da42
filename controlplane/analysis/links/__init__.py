"""Judge the links between the nodes of a job from what the nodes measure on them."""
