"""Render the batch script that runs a training job on Slurm."""
