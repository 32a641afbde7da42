"""Render the manifests of a training job."""
