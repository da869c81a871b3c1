"""Hotkeys: making signers and checking signatures with the SDK's compiled core (sr25519, about 30 us and 70 us).

`verify` is total: malformed input is a False, never an exception, and a hotkey counts by its public key, so
the same key under another ss58 prefix is the same key, as for the SDK. It does not ask whether a hotkey is registered.
Every message must start with a domain tag: the core also accepts a signature over `<Bytes>…</Bytes>`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import bittensor_core as core

from arena.chain.port import Signer
from foundation.errors import ArenaError

SS58_FORMAT = 42
SR25519 = int(core.CRYPTO_SR25519)  # the SDK's number for the only kind of key hotkeys have here
SIGNATURE_BYTES = 64
HOTKEY_CHARS_MAX = 128  # no address is longer; what is remembered is bounded by it
DEFAULT_WALLET_PATH = Path("~/.bittensor/wallets")
_UNREADABLE = (ValueError, core.KeyfileError, core.WrongPasswordError)


class KeypairSigner:
    """A `Signer` over an unlocked sr25519 keypair held in memory. `hotkey` has prefix 42."""

    def __init__(self, keypair: core.Keypair) -> None:
        self._keypair = keypair
        self.hotkey = str(core.ss58_encode(bytes(keypair.public_key), SS58_FORMAT))

    def sign(self, message: bytes) -> bytes:
        """64 bytes over `message`; randomised, so never an identity."""
        return bytes(self._keypair.sign(message))

    def __repr__(self) -> str:
        return f"KeypairSigner({self.hotkey})"


class SdkSigner:
    """A `Signer` in the shape the SDK signs extrinsics with; it holds no key of its own.

    Named by its address under prefix 42.
    """

    def __init__(self, signer: Signer) -> None:
        self.ss58_address = canonical_hotkey(signer.hotkey) or signer.hotkey
        self.public_key = public_key(signer.hotkey) or b""
        self.crypto_type = SR25519
        self._signer = signer

    def sign(self, payload: bytes) -> bytes:
        """64 bytes over `payload`."""
        return self._signer.sign(payload)


def keypair_signer(uri: str) -> Signer:
    """The signer of a development key such as `//Alice`, or of a mnemonic with an optional path.

    Raises ArenaError V2030 when the text is no key. Derivation takes milliseconds: keep the signer.
    """
    try:
        return KeypairSigner(core.Keypair.create_from_uri(uri))
    except ValueError as error:
        raise ArenaError("V2030", "the key URI cannot be read", fix="write it as //Alice") from error


def wallet_signer(
    name: str, hotkey: str, path: str | Path = DEFAULT_WALLET_PATH, *, password_file: Path | None = None
) -> Signer:
    """The signer of `path/name/hotkeys/hotkey`, a keyfile as btcli writes it.

    An encrypted keyfile takes its password from the first line of `password_file` or, without one, from the environment
    variable that the SDK keeps it in (`BT_PW_...`); there is no prompt, because a validator starts unattended. Raises
    ArenaError V2030 with the path and the reason.
    """
    keyfile = Path(path).expanduser() / name / "hotkeys" / hotkey
    try:
        data = keyfile.read_bytes()
        if core.keyfile_data_is_encrypted(data):
            data = _decrypted(keyfile, data, password_file)
        keypair = core.deserialize_keypair_from_keyfile_data(data)
        if keypair.crypto_type != SR25519:
            fix = "make an sr25519 key: btcli wallet new-hotkey"
            raise ArenaError("V2030", f"{keyfile} is no sr25519 key", fix=fix)
        signer = KeypairSigner(keypair)
        signer.sign(b"agent-arena/probe/1")  # a public-only keyfile deserialises, but cannot sign
    except FileNotFoundError as error:
        fix = "local network: --wallet.hotkey //Bob; else: btcli wallet new-hotkey"
        raise ArenaError("V2030", f"no hotkey `{hotkey}` in wallet `{name}` ({keyfile})", fix=fix) from error
    except (OSError, *_UNREADABLE) as error:
        fix = "check the file and its permissions"
        raise ArenaError("V2030", f"{keyfile} cannot be read: {error}", fix=fix) from error
    return signer


def _decrypted(keyfile: Path, data: bytes, password_file: Path | None) -> bytes:
    """What an encrypted keyfile holds. Raises ArenaError V2030 without its password, or with another."""
    source = "BT_PW_" + str(keyfile).replace("/", "_").replace(".", "_").upper()
    if password_file is None:
        password = str(core.get_password_from_environment(source) or "")
    else:
        source = str(password_file)
        try:
            password = password_file.read_text("utf-8").partition("\n")[0].removesuffix("\r")
        except (OSError, UnicodeDecodeError) as error:
            detail = f"{keyfile} is encrypted, and its password cannot be read: {error}"
            fix = "check the file that wallet_password_file names, and its permissions"
            raise ArenaError("V2030", detail, fix=fix) from error
    if not password:
        detail = f"{keyfile} is encrypted, and {source} holds no password"
        raise ArenaError("V2030", detail, fix="write it into a file and name that: wallet_password_file")
    try:
        return bytes(core.decrypt_keyfile_data(data, password))
    except _UNREADABLE as error:
        detail = f"{keyfile} does not open with the password of {source}"
        raise ArenaError("V2030", detail, fix="put the keyfile's own there") from error


def public_key(hotkey: str) -> bytes | None:
    """The 32-byte public key of an ss58 address of any prefix, or None when it is malformed."""
    try:
        return bytes(core.ss58_decode(hotkey))
    except (ValueError, TypeError):
        return None


def canonical_hotkey(hotkey: str) -> str | None:
    """The address of the same key with prefix 42, or None when it is malformed. Compare hotkeys in this form only."""
    key = public_key(hotkey)
    return None if key is None else str(core.ss58_encode(key, SS58_FORMAT))


_remembered = functools.lru_cache(maxsize=64)(canonical_hotkey)  # records of one log are all of one hotkey


def verify(hotkey: str, message: bytes, signature: bytes) -> bool:
    """True when `signature` is the hotkey's over `message`. Implements `arena.chain.port.Verifier`."""
    canonical = _remembered(hotkey) if len(hotkey) <= HOTKEY_CHARS_MAX else None
    if canonical is None or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        return bool(core.verify(message, signature, canonical, SR25519))
    except (ValueError, TypeError):
        return False


MAX_AGE_S, SKEW_S = 10.0, 2.0  # a request's age, and how far ahead its sender's clock may be
NONCES_MAX = 4_096  # remembered of one hotkey; one that sends more within the window is refused
_SECOND_NS = 1_000_000_000


class HttpCheck:
    """Checks requests to one hotkey, which takes no key: a server that strangers reach need not hold one."""

    def __init__(self, hotkey: str, now_ns: Callable[[], int]) -> None:
        """`now_ns` is unix nanoseconds."""
        self.hotkey = canonical_hotkey(hotkey) or hotkey
        self._now_ns = now_ns
        self._seen = _Seen(now_ns())

    def claimed(self, headers: Mapping[str, str]) -> str | None:
        """Who a request says it is from, unchecked; None when it names no hotkey."""
        return canonical_hotkey(headers.get("x-bittensor-hotkey", ""))

    def caller(self, headers: Mapping[str, str], method: str, target: str, body: bytes = b"") -> str:
        """The hotkey that signed a request (prefix 42). Raises ArenaError V2110 with the reason."""
        self._seen.heed_clock(self._now_ns())
        hotkey, nonce_ns = self.signed(headers, method, target, body)
        self._seen.take(hotkey, nonce_ns)
        return hotkey

    def signed(self, headers: Mapping[str, str], method: str, target: str, body: bytes = b"") -> tuple[str, int]:
        """As `caller`, with the request's nonce (nanoseconds), which is *not* asked whether it was seen before: for
        servers that keep nonces where several processes and restarts find them. Raises ArenaError V2110."""
        from bittensor import http_auth  # the package takes half a second to load

        try:
            found = http_auth.verify(
                headers,
                body,
                method=method,
                path=target,
                self_hotkey_ss58=self.hotkey,
                max_age=MAX_AGE_S,
                allowed_skew=SKEW_S,
                nonce_store=_KeptElsewhere(),
                now_ns=self._now_ns(),
            )
        except http_auth.AuthError as error:
            raise ArenaError("V2110", str(error)) from error
        caller = canonical_hotkey(found.hotkey_ss58)
        if caller is None or found.crypto_type != SR25519:
            raise ArenaError("V2110", "only sr25519 hotkeys are known here")
        return caller, found.nonce_ns


class HttpAuth(HttpCheck):
    """Signed requests of one hotkey, sent and received: one for the server and the client side of a validator."""

    def __init__(self, signer: Signer, now_ns: Callable[[], int]) -> None:
        """As of `HttpCheck`."""
        super().__init__(signer.hotkey, now_ns)
        self._signer = signer
        self._last_ns = 0

    def sign(self, method: str, target: str, receiver: str, body: bytes = b"") -> dict[str, str]:
        """The headers of a request. `target` is path and query as they are sent. Each call is a new request.

        As the SDK writes them (`btauth/1`), which checks them at the other end: a miner's command need not load it.
        """
        now_ns = self._now_ns()
        is_set_back = now_ns < self._last_ns - SKEW_S * _SECOND_NS  # a nonce after the last would lie in the future
        self._last_ns = now_ns if is_set_back else max(now_ns, self._last_ns + 1)
        nonce, digest = str(self._last_ns), hashlib.sha256(body).hexdigest()
        lines = ("btauth/1", "sr25519", method.upper(), target, digest, nonce, self.hotkey, receiver)
        signature = "0x" + self._signer.sign("\n".join(lines).encode()).hex()
        said = {"Version": "1", "Hotkey": self.hotkey, "Nonce": nonce, "Signature": signature, "Receiver": receiver}
        return {f"X-Bittensor-{name}": value for name, value in said.items()}


class _KeptElsewhere:
    def check_and_store(self, hotkey_ss58: str, nonce_ns: int) -> bool:
        return True


class _Seen:
    """Nonces let through, by hotkey. Nonces are times: one that is far behind a hotkey's highest is taken for known, so
    that a clock that is set back makes no request fresh again."""

    def __init__(self, since_ns: int) -> None:
        self._since_ns = self._latest_ns = since_ns
        self._accepted: dict[str, tuple[int, set[int]]] = {}  # the highest, and those that are not far behind it

    def heed_clock(self, now_ns: int) -> None:
        """Begin anew when the clock was set back: what is fresh by it may have been let through by another process."""
        if now_ns < self._latest_ns - SKEW_S * _SECOND_NS:
            self._since_ns = now_ns + int(SKEW_S * _SECOND_NS)
        self._latest_ns = now_ns

    def take(self, hotkey: str, nonce_ns: int) -> None:
        """Take a nonce not from before the start, once. Raises ArenaError V2110 with the reason for any other."""
        highest, nonces = self._accepted.get(hotkey, (nonce_ns, set[int]()))
        highest = max(highest, nonce_ns)
        oldest = highest - int(2 * (MAX_AGE_S + SKEW_S) * _SECOND_NS)
        if nonce_ns < self._since_ns:
            raise ArenaError("V2110", "it was signed before this server began or its clock was set back")
        if nonce_ns in nonces or nonce_ns < oldest:
            raise ArenaError("V2110", "this request was already accepted, or a much later one was")
        if len(nonces) >= NONCES_MAX:
            nonces = {nonce for nonce in nonces if nonce >= oldest}
        if len(nonces) >= NONCES_MAX:
            raise ArenaError("V2110", f"more than {NONCES_MAX} requests within {2 * (MAX_AGE_S + SKEW_S):g} s")
        nonces.add(nonce_ns)
        self._accepted[hotkey] = (highest, nonces)
