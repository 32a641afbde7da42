# Coordinator, agent and launcher: no torch, no compiler, no shell history. The trainer brings an image of its own.
#
#   docker build -f docker/holdfast.Dockerfile --build-arg PYTHON=python:3.12-slim-bookworm@sha256:... -t holdfast:0.1.0 .
#
# The base has no default: name it with its digest, so that the same build gives the same image.
ARG PYTHON

FROM ${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
# What is needed changes seldom, our code often: a layer of its own for each.
COPY docker/requirements.txt ./
RUN python -m venv /venv && /venv/bin/pip install --requirement requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY controlplane ./controlplane
COPY agent ./agent
COPY holdfast ./holdfast
RUN /venv/bin/pip install --no-deps --no-build-isolation . && /venv/bin/python -m compileall -q /venv/lib

FROM ${PYTHON}
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="holdfast" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /venv /venv
ENV PATH=/venv/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["/venv/bin/holdfast"]
CMD ["--help"]
