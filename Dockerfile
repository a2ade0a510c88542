# docker build -t registry.example/gangsched:0.2.0 .
#
# Everything is installed from locked requirements with their hashes; what comes on top of the base has no pip, no
# compiler, no shell script of ours, and needs no place to write: run it with --read-only (and a tmpfs on /tmp).
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
WORKDIR /src
# The build backend comes from the lock that tests run with; none of this is in the image.
COPY requirements.lock ./
RUN python -m venv /build \
    && /build/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock
COPY requirements.runtime.lock ./
RUN python -m venv /opt/gangsched \
    && /opt/gangsched/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes \
        -r requirements.runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY gangsched gangsched
RUN /build/bin/pip wheel --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/gangsched/bin/pip install --disable-pip-version-check --no-index --no-deps /wheels/*.whl \
    && /opt/gangsched/bin/pip uninstall --quiet --yes pip setuptools \
    # Compiled now: a read-only file system keeps nothing later, and starting would compile it all each time.
    && python -m compileall -q -j 0 /opt/gangsched

FROM python:${PYTHON}-slim
LABEL org.opencontainers.image.title="gangsched" \
      org.opencontainers.image.description="An asyncio gang scheduler for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/gangsched /opt/gangsched
ENV PATH=/opt/gangsched/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# The numbers of deploy/deployment.yaml: nobody's, with no name and no home.
USER 65532:65532
WORKDIR /
EXPOSE 10259
ENTRYPOINT ["gangsched"]
CMD ["scheduler"]
