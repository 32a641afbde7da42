"""The chart, the images and the trainer's side of a pod, as far as they can be met without a cluster."""
