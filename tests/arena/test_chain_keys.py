"""Hotkeys: signing, total verification, wallets on disk."""

from __future__ import annotations

import base64
from pathlib import Path

import bittensor_core as core
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.chain.keys import keypair_signer, verify, wallet_signer
from arena.chain.opening import open_signer
from foundation.errors import ArenaError

ALICE = keypair_signer("//Alice")
# the keyfile of //Alice as the SDK encrypts it under the password "secret", which takes seconds
ENCRYPTED = base64.b64decode(
    "JE5BQ0wQToI0VCcmR2BmJjBmM7iPWbQrR6KELMVSXPeeJv8fFbksZiSVWaV5vnQt26oxA4QU0UYhtbqBWF7HvBLWi6o9bG4b2Euw"
    "Va/hosebJx2S7RJf6dWTzTIICA7iSF6LWd8yXc6puTLK4pfVJFHmwll1PFU0QgoSFYglVRM1zhUGX9f7uodaeMCTB0wpA77Fusx2"
    "Fjvq7BCdL7QtGdzjYfqZ7V44rfAycOPePU6uytlT+dHyVZCg/GlUboC1ysK8TakpCZYbO2ThU/Kttfh7PBO+cywn8vkAXgcmhiT4"
    "IlF5hkfe984ldH0QB3wF/0ufcj7x10+F9DKWMNyzFyX1KCvXqEejYSUNiPvZmQroXs3wOr0eA1zT8UMGyFblz/cXsc98SKVqKzlq"
    "jfxd7OfLqwaRnI40DwLPzSPCpCyNJl12t4l+L2uV73f7llXqzCjDF+yOtFcVL2K291+FKvQLKxc0wMPk0ePW8Vr64LCCct4PWVGT"
    "SZeC0rguSRj2+zUMUcutj6dejRM2KN9FkFWZKVa1kbg5ll1gMspXLin1Rel0Z2DIfOFdOqVp0M6SHCs="
)
ALICE_ADDRESS = "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY"  # the ecosystem's well-known development key


@given(st.binary(max_size=200))
def test_a_signature_verifies_for_its_hotkey_alone(message: bytes) -> None:
    signature = ALICE.sign(message)
    assert verify(ALICE.hotkey, message, signature)
    assert not verify(keypair_signer("//Bob").hotkey, message, signature)
    assert not verify(ALICE.hotkey, message + b".", signature)


@given(st.text(max_size=60), st.binary(max_size=80), st.binary(max_size=80))
def test_verification_of_garbage_is_false_and_never_an_exception(hotkey: str, message: bytes, signature: bytes) -> None:
    assert verify(hotkey, message, signature) is False
    assert verify(ALICE.hotkey, message, signature) is False


def test_an_encrypted_hotkey_takes_its_password_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyfile = tmp_path / "cold" / "hotkeys" / "hot"
    keyfile.parent.mkdir(parents=True)
    keyfile.write_bytes(ENCRYPTED)
    secret = tmp_path / "secret"
    named = {"name": "cold", "hotkey": "hot", "path": tmp_path, "password_file": secret}
    for content, words in (
        (None, "its password cannot be read"),
        (b"\xff\xfe", "its password cannot be read"),
        (b"\nsecret", "holds no password"),
    ):
        if content is not None:
            secret.write_bytes(content)
        with pytest.raises(ArenaError, match="V2030") as caught:
            open_signer("finney", **named)
        assert words in caught.value.failure.detail
    secret.write_text("secret\r\nof the hotkey\n")
    assert open_signer("finney", **named).hotkey == ALICE_ADDRESS
    variable = "BT_PW_" + str(keyfile).replace("/", "_").replace(".", "_").upper()
    monkeypatch.setenv(variable, "")  # restored afterwards, whatever the SDK stores there
    for password, words in (("", f"{variable} holds no password"), ("another", f"with the password of {variable}")):
        if password:  # opening takes seconds
            core.save_password_to_environment(variable, password)
        with pytest.raises(ArenaError, match="V2030") as caught:
            wallet_signer("cold", "hot", tmp_path)
        assert words in caught.value.failure.detail and "another" not in str(caught.value)
    keyfile.write_bytes(bytes(core.serialized_keypair_to_keyfile_data(core.Keypair.create_from_uri("//Bob"))))
    secret.unlink()
    assert open_signer("finney", **named).hotkey != ALICE_ADDRESS, "a key that is open needs no password"


def test_a_keyfile_that_is_missing_broken_or_of_another_kind_is_named_and_no_signer(tmp_path: Path) -> None:
    keyfile = tmp_path / "cold" / "hotkeys" / "hot"
    keyfile.parent.mkdir(parents=True)
    public = core.Keypair(ss58_address=ALICE_ADDRESS)
    pairs = (public, core.Keypair.create_from_uri("//Alice", core.CRYPTO_ED25519))
    keys = [bytes(core.serialized_keypair_to_keyfile_data(pair)) for pair in pairs]
    for content in (None, b"", b"{}", b"not a keyfile", b"\xff\xfe", *keys):
        if content is not None:
            keyfile.write_bytes(content)
        with pytest.raises(ArenaError, match=r"V2030.*hotkeys/hot" if content not in keys else "V2030|sr25519"):
            wallet_signer("cold", "hot", tmp_path)
