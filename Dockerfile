# syntax=docker/dockerfile:1
FROM python:3.13-slim AS build
RUN python -m venv /opt/stromboli
ENV PATH=/opt/stromboli/bin:$PATH
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY app app
RUN pip install --no-cache-dir --constraint constraints.txt ".[otel,ui]" \
 && python -m compileall -q /opt/stromboli/lib

FROM python:3.13-slim
COPY --from=build /opt/stromboli /opt/stromboli
ENV PATH=/opt/stromboli/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
WORKDIR /tmp
EXPOSE 8080
ENTRYPOINT ["stromboli"]
