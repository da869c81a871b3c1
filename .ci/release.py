"""A release of one commit: sdist, wheel, pins, bill of materials and image, with signed sums; and the check of one.

    make release KEY=~/.ssh/release_ed25519          build/release/VERSION, and the signed tag vVERSION
    make verify-release RELEASE=FOLDER SIGNERS=FILE  from a checkout that has the tag, or from none

The distributions are built twice, in folders of different names, and refused unless they are equal to the byte. Key and
signers are OpenSSH's: a signers file has lines of `NAME ssh-ed25519 AAAA...` (ssh-keygen(1), ALLOWED SIGNERS).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SBOM_TOOL = "cyclonedx-bom==7.5.0"  # CycloneDX's own for Python; in an environment of its own, as its pins are not ours
SUMS, SIGNATURE, SBOM, IMAGE = "SHA256SUMS", "SHA256SUMS.sig", "sbom.cdx.json", "image.json"
RECIPE = "node.Dockerfile"  # of the image: whoever has the folder builds it, without a checkout
CONTENTS = """import base64, hashlib, importlib.metadata as held
for one in held.distributions(): print(one.name, one.version)
for file in held.files("agent-arena"):
    digest = hashlib.sha256(file.read_binary()).digest()
    print(file, "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("="))
"""
NAMESPACE = "agent-arena-release"  # a signature made for another purpose does not count


class ReleaseError(Exception):
    """What is wrong, and what to do: one line."""


def say(line: str) -> None:
    """A step, as it begins."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run(*words: object, cwd: Path | None = None, stdin: bytes = b"", **environment: str) -> str:
    """A command's output. Raises `ReleaseError` with the last line it said."""
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, input=stdin, capture_output=True, env={**os.environ, **environment}
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).decode("utf-8", "replace").splitlines() or ["nothing"]
        raise ReleaseError(f"`{' '.join(map(str, words[:4]))}` ended with {done.returncode}: {said[-1]}")
    return done.stdout.decode("utf-8")


def git(*words: str) -> str:
    """What git says of this checkout."""
    return run("git", "-C", ROOT, *words).strip()


# -- building


def build_release(key: Path, out: Path, tag: str) -> None:
    """Writes the release of HEAD under `out`; without a `tag` made before, signs one.

    Raises `ReleaseError` if tree, version, changelog or tag do not fit.
    """
    if not key.is_file():
        raise ReleaseError(f"{key} is no signing key's file. Name one that ssh-keygen made: KEY=FILE")
    version = version_to_release(tag)
    commit, epoch_s = git("rev-parse", "HEAD"), int(git("log", "-1", "--format=%ct"))
    folder = out / version
    if folder.exists():
        raise ReleaseError(f"{folder} exists. Remove it, or name another place: ARGS='--out DIR'")
    with tempfile.TemporaryDirectory() as place:
        made = Path(place) / "release"
        made.mkdir()
        say(f"{version} of {commit[:12]}: sdist and wheel, twice")
        wheel = build_twice(commit, epoch_s, made)
        say("pins, and the bill of materials of an environment with the wheel alone")
        for name in ("README.md", "constraints.txt", f"docker/{RECIPE}"):
            shutil.copy(ROOT / name, made)
        write_sbom(install(wheel, made / "constraints.txt", Path(place) / "env"), made / SBOM, epoch_s)
        listed = (made / SBOM).read_text("utf-8")  # the place of this build is nobody's business, and differs each time
        (made / SBOM).write_text(listed.replace(made.as_uri() + "/", ""), "utf-8")
        say(build_image(made, version, commit))
        write_sums(made)
        sign(made / SUMS, key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(made, folder)
    if not tag:
        signed = ("-c", "gpg.format=ssh", "-c", f"user.signingkey={key.resolve()}")
        git(*signed, "tag", "--sign", "--message", f"agent-arena {version}", f"v{version}", commit)
    say(f"{folder} and the tag v{version}. Next: make verify-release RELEASE={folder} SIGNERS=FILE")


def version_to_release(tag: str) -> str:
    """The version of a tree that can be released as it stands, under the tag it has or a new one."""
    version = str(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"])
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ReleaseError(f"version {version} in pyproject.toml is no release's. Set it to X.Y.Z and commit")
    if changed := git("status", "--porcelain"):
        raise ReleaseError(f"the checkout has changes ({changed.splitlines()[0].strip()}). Commit or remove them")
    if f"## {version}" not in (ROOT / "CHANGELOG.md").read_text("utf-8"):
        raise ReleaseError(f"CHANGELOG.md has no entry `## {version}`. Write it and commit")
    if tag and (tag != f"v{version}" or git("rev-parse", f"{tag}^{{commit}}") != git("rev-parse", "HEAD")):
        raise ReleaseError(f"{tag} is not the tag of this commit and version {version}. Check out the tag")
    if not tag and git("tag", "--list", f"v{version}"):
        raise ReleaseError(f"the tag v{version} exists. Raise the version, or check it: make verify-release")
    return version


def build_twice(commit: str, epoch_s: int, out: Path) -> Path:
    """Writes sdist and wheel of `commit` into `out`; the wheel's path. Refuses a second build that differs."""
    built = build_distributions(commit, epoch_s, out)
    with tempfile.TemporaryDirectory() as place:
        again = build_distributions(commit, epoch_s, Path(place))
        for first, second in zip(built, again, strict=True):
            if sha256(first) != sha256(second):
                raise ReleaseError(f"{first.name} is not reproducible: two builds of {commit[:12]} differ")
    return built[1]


def build_distributions(commit: str, epoch_s: int, out: Path) -> tuple[Path, Path]:
    """The sdist and, made of it, the wheel of one commit, whatever else lies in the checkout."""
    with tempfile.TemporaryDirectory() as place:
        packed = subprocess.run(
            ["git", "-c", "tar.umask=0022", "-C", str(ROOT), "archive", commit], capture_output=True, check=True
        )
        tree = Path(place) / "tree"
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(tree, filter="data")
        build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", out, tree)
        run(*build, SOURCE_DATE_EPOCH=str(epoch_s))
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    strip_times(sdist, epoch_s)
    return sdist, wheel


def strip_times(sdist: Path, epoch_s: int) -> None:
    """Packs an sdist again with one time, owner and order: setuptools takes these from the disk."""
    with tarfile.open(sdist) as packed:
        members = [(member, packed.extractfile(member)) for member in sorted(packed, key=lambda m: m.name)]
        held = [(member, stream.read() if stream else b"") for member, stream in members]
    with (
        sdist.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch_s) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as packed,
    ):
        for member, content in held:
            plain = tarfile.TarInfo(member.name)
            plain.size, plain.type, plain.mtime = len(content), member.type, epoch_s
            plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            packed.addfile(plain, io.BytesIO(content))


def install(wheel: Path, constraints: Path, environment: Path) -> Path:
    """The interpreter of a new environment that holds the wheel and its pins, and nothing else."""
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--constraint", constraints, wheel)
    return python


def write_sbom(python: Path, path: Path, epoch_s: int) -> None:
    """CycloneDX's list of what the environment holds."""
    with tempfile.TemporaryDirectory() as place:
        run(sys.executable, "-m", "venv", place)
        run(Path(place) / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", SBOM_TOOL)
        tool = Path(place) / "bin" / "cyclonedx-py"
        run(tool, "environment", "--output-reproducible", "-o", path, python, SOURCE_DATE_EPOCH=str(epoch_s))


def engine_here() -> str:
    """The container engine that answers. Raises `ReleaseError` where none does."""
    engine = shutil.which("docker") or shutil.which("podman")
    if engine is None:
        raise ReleaseError("there is no docker or podman here")
    run(engine, "info")
    return engine


def build_image(folder: Path, version: str, commit: str) -> str:
    """Builds the node's image of the wheel in `folder` and notes its id there; without an engine it says so."""
    try:
        engine = engine_here()
    except ReleaseError as error:
        return f"no image: {error}"
    tag = f"agent-arena:{version}"
    arguments = ("--build-arg", "WHEEL=release", "--build-arg", f"COMMIT={commit}", "--tag", tag)
    run(engine, "build", "--file", folder / RECIPE, *arguments, folder, DOCKER_BUILDKIT="1")
    identity = run(engine, "image", "inspect", "--format", "{{.Id}}", tag).strip()
    (folder / IMAGE).write_text(json.dumps({"tag": tag, "id": identity}) + "\n", "utf-8")
    return f"image {tag} is {identity}"


def write_sums(folder: Path) -> None:
    """One line a file, as `sha256sum --check` reads them."""
    files = sorted(path for path in folder.iterdir() if path.name not in (SUMS, SIGNATURE))
    (folder / SUMS).write_text("".join(f"{sha256(path)}  {path.name}\n" for path in files), "utf-8")


def sign(path: Path, key: Path) -> None:
    """Writes `path`.sig by OpenSSH."""
    run("ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", NAMESPACE, path)


def sha256(path: Path) -> str:
    """The file's sum in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


# -- checking


def verify_release(folder: Path, signers: Path) -> None:
    """Every check of a release; nothing runs that was not signed. Raises `ReleaseError` at the first that fails."""
    for path in (folder, signers):
        if not path.exists() or path == Path():
            raise ReleaseError(f"{path} is not there. Name a release and who may sign: RELEASE=FOLDER SIGNERS=FILE")
    say(f"signed by {signed_by(folder, signers)}")
    check_sums(folder)
    (wheel,) = folder.glob("*.whl")
    version = wheel.name.split("-")[1]
    say(check_source(folder, version, signers))
    with tempfile.TemporaryDirectory() as place:
        python = install(wheel, folder / "constraints.txt", Path(place) / "env")
        say(check_sbom(folder, python))
        say(check_image(folder, python))
        state = {"ARENA_STATE_DIR": f"{place}/state", "HOME": place}
        arena = Path(place) / "env" / "bin" / "arena"
        if version not in (said := run(arena, "--version", cwd=Path(place), **state)):
            raise ReleaseError(f"the wheel of {version} says it is {said.strip()}. Build the release anew")
        say("the demo, from the wheel alone")
        run(arena, "demo", cwd=Path(place), **state)
    say(f"{version} is whole")


def signed_by(folder: Path, signers: Path) -> str:
    """Who of the signers signed the sums."""
    signature = folder / SIGNATURE
    if not signature.is_file():
        raise ReleaseError(f"{folder} has no {SIGNATURE}: it is not signed. Ask for the signed folder")
    check = ("ssh-keygen", "-Y")
    found = run(*check, "find-principals", "-s", signature, "-f", signers).strip().splitlines()[0]
    named = ("-n", NAMESPACE, "-I", found, "-f", signers, "-s", signature)
    run(*check, "verify", *named, stdin=(folder / SUMS).read_bytes())
    return found


def check_sums(folder: Path) -> None:
    """Refuses a file that is missing, other or more than what was signed."""
    lines = (folder / SUMS).read_text("utf-8").splitlines()
    named = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    held = {path.name for path in folder.iterdir()} - {SUMS, SIGNATURE}
    for name in sorted(held ^ set(named)):
        raise ReleaseError(f"{name} is {'not signed for' if name in held else 'missing'}. Fetch the release anew")
    for name, digest in named.items():
        if sha256(folder / name) != digest:
            raise ReleaseError(f"{name} is not the file that was signed. Fetch the release anew")


def check_source(folder: Path, version: str, signers: Path) -> str:
    """Builds both distributions anew from the tag, where this checkout has it signed, and compares."""
    if not (ROOT / ".git").exists() or not git("tag", "--list", f"v{version}"):
        return f"not built anew: this checkout has no tag v{version}"
    git("-c", "gpg.format=ssh", "-c", f"gpg.ssh.allowedSignersFile={signers.resolve()}", "verify-tag", f"v{version}")
    commit = git("rev-parse", f"v{version}^{{commit}}")
    epoch_s = int(git("log", "-1", "--format=%ct", commit))
    with tempfile.TemporaryDirectory() as place:
        for again in build_distributions(commit, epoch_s, Path(place)):
            if sha256(again) != sha256(folder / again.name):
                raise ReleaseError(
                    f"{again.name} is not what v{version} ({commit[:12]}) builds. Compare the build tools"
                )
    return f"sdist and wheel are what the signed tag v{version} builds"


def check_sbom(folder: Path, python: Path) -> str:
    """Compares the bill of materials with what an installation has."""
    listed = {(c["name"], c["version"]) for c in json.loads((folder / SBOM).read_bytes())["components"]}
    told = run(
        sys.executable, "-m", "pip", "--python", python, "list", "--format", "json", "--disable-pip-version-check"
    )
    held = {(c["name"], c["version"]) for c in json.loads(told)}
    if listed != held:
        raise ReleaseError(f"{SBOM} and an installation differ by {sorted(listed ^ held)[:3]}. Build the release anew")
    return f"{len(listed)} packages, as {SBOM} lists them"


def check_image(folder: Path, python: Path) -> str:
    """Starts the image that was noted, where an engine has it, and compares its packages with an installation's."""
    if not (folder / IMAGE).is_file():
        return "the release was built without an image"
    identity = json.loads((folder / IMAGE).read_bytes())["id"]
    try:
        engine = engine_here()
        run(engine, "image", "inspect", identity)
    except ReleaseError as error:
        return f"image not looked at: {error}"
    arguments = ("run", "--rm", "--network", "none", "--entrypoint", "python", identity, "-I", "-c", CONTENTS)
    held = set(run(engine, *arguments).splitlines())
    listed = {f"{c['name']} {c['version']}" for c in json.loads((folder / SBOM).read_bytes())["components"]}
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        (record,) = (name for name in packed.namelist() if name.endswith(".dist-info/RECORD"))
        rows = [line.split(",")[:2] for line in packed.read(record).decode("utf-8").splitlines()]
    if lacking := sorted((listed | {f"{name} {digest}" for name, digest in rows if digest}) - held):
        raise ReleaseError(f"the image {identity[:19]} lacks {lacking[0]}. Build the release anew")
    return f"image {identity[:19]} holds these packages, and the wheel's {len(rows)} files as they are"


def main() -> int:
    """One of the two commands; 0, or 1 with one line on stderr."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    build = commands.add_parser("build")
    build.add_argument("--key", type=Path, required=True)
    build.add_argument("--out", type=Path, default=ROOT / "build" / "release")
    build.add_argument("--tag", default="", help="the tag that this commit has, e.g. v0.2.0; else one is made")
    build.set_defaults(do=lambda a: build_release(a.key, a.out, a.tag))
    verify = commands.add_parser("verify")
    verify.add_argument("folder", type=Path)
    verify.add_argument("--signers", type=Path, required=True)
    verify.set_defaults(do=lambda a: verify_release(a.folder, a.signers))
    arguments = parser.parse_args()
    do: Callable[[argparse.Namespace], object] = arguments.do
    try:
        do(arguments)
    except ReleaseError as refused:
        sys.stderr.write(f"{refused}\n")
        return 1
    return 0


if __name__ == "__main__":
    os.umask(0o022)
    raise SystemExit(main())
