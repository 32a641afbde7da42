"""Test the chart, the images and the trainer's side of a pod, as far as that is possible without a Kubernetes
cluster."""
