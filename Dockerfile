# `make image` builds this with docker, podman or buildah, and names the base by its digest.
ARG BASE=docker.io/library/python:3.13-slim

# hadolint ignore=DL3006
FROM ${BASE} AS build
WORKDIR /src
RUN python -m venv /opt/tools && python -m venv --without-pip /opt/stromboli
COPY deploy/image deploy/image
RUN /opt/tools/bin/pip install --no-cache-dir --require-hashes --requirement deploy/image/build.txt \
 && /opt/tools/bin/pip --python /opt/stromboli/bin/python install --no-cache-dir --require-hashes \
      --requirement deploy/image/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY charts/stromboli/files/crds charts/stromboli/files/crds
COPY examples examples
COPY app app
RUN /opt/tools/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist . \
 && /opt/tools/bin/pip --python /opt/stromboli/bin/python install --no-cache-dir --no-deps dist/*.whl \
 && /opt/stromboli/bin/python deploy/image/sbom.py > /opt/stromboli/sbom.cdx.json \
 && python -m compileall -q /opt/stromboli/lib

# hadolint ignore=DL3006
FROM ${BASE}
ARG BASE_NAME=unknown
ARG BASE_DIGEST=unknown
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="stromboli" \
      org.opencontainers.image.description="A queue scheduler for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${BASE_NAME}" \
      org.opencontainers.image.base.digest="${BASE_DIGEST}"
# Nothing in it installs anything.
RUN rm -rf "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"/pip* \
      "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"/ensurepip \
      /usr/local/bin/pip* /usr/share/python-wheels
COPY --from=build /opt/stromboli /opt/stromboli
ENV PATH=/opt/stromboli/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
WORKDIR /tmp
EXPOSE 8080
ENTRYPOINT ["stromboli"]
