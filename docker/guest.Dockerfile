# The guest of the sandbox level `docker`: the guest root and nothing else, so the image and the other levels run the
# same interpreter, library, runner and SDK, byte for byte. No base image, no shell, no package manager.
#
# `arena doctor` prints the guest root's folder; its name is the hash of its content. Build, push, and pin the digest:
#
#   docker build -f docker/guest.Dockerfile --build-arg GUEST_SHA256="$(basename "$ROOT")" -t REGISTRY/agent-arena-guest "$ROOT"
#   docker push REGISTRY/agent-arena-guest
#   ARENA_SANDBOX=docker ARENA_DOCKER_IMAGE=REGISTRY/agent-arena-guest@sha256:... arena doctor
#
# User, limits, environment and command come with each run (harness/sandbox/jails/docker.py), so nothing here can drift.
FROM scratch
ARG GUEST_SHA256
LABEL agent-arena.guest-sha256="${GUEST_SHA256}"
COPY . /
