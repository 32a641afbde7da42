# An example of a trainer's image: yours looks otherwise. Python 3.11 or newer and torch; nothing of Holdfast is in it,
# the launcher and the SDK come with the pod.
#
#   docker build -f docker/trainer.Dockerfile --build-arg TORCH=pytorch/pytorch:2.6.0-cuda12.6-cudnn9-runtime@sha256:... .
ARG TORCH

FROM ${TORCH}
COPY holdfast/examples/train_gpt.py /src/train.py
USER 65532:65532
WORKDIR /src
CMD ["python", "train.py"]
