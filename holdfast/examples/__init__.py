"""Hold the training script that `holdfast demo` runs. It is installed with the SDK and imports only it."""
