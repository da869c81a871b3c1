"""The settings of a node as options in the help and completion of `arena validator` and `arena doctor`, in groups.

`neurons.node.settings` reads them; here they are only shown, so the names and sentences are taken from there.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

GROUPS: dict[str, tuple[str, ...]] = {
    "Who this validator is": (
        "wallet_name",
        "wallet_hotkey",
        "wallet_path",
        "wallet_password_file",
        "wallet_proxy",
        "network",
        "netuid",
        "mechanism",
    ),
    "Rules of the race": ("policy", "operator_hotkey", "bank_hotkey", "bank_days_min", "models", "shadow"),
    "Folders and store": ("state_dir", "catalogue_dir", "guest_dir", "database_dsn", "bodies_url"),
    "Jails and workers": ("workers", "sandbox", "docker_image", "docker_runtime"),
    "Model endpoint": ("openai_base_url", "openai_api_key"),
    "Judge endpoint": (
        "judge_base_url",
        "judge_api_key",
        "judge_prompt_micro_usd",
        "judge_completion_micro_usd",
        "judge_reasoning_tokens",
        "judge_reasoning_effort",
        "judge_race_tokens",
        "judge_race_micro_usd",
        "judge_race_minutes",
    ),
    "Door for miners": ("door_host", "door_port", "local_chain_port"),
    "Public reads": ("serve_host", "serve_port", "serve_clients", "serve_sn15"),
    "Racing with other validators": ("share", "public_endpoint", "exchange_port"),
    "Checkpoints and anchors": ("checkpoint_every_s", "checkpoint_dir", "anchor_every_s"),
    "Log and metrics": ("log_format", "log_level", "metrics_host", "metrics_port", "parent_pid"),
}
_FLAGS = {
    "wallet_name": "--wallet.name",
    "wallet_hotkey": "--wallet.hotkey",
    "wallet_path": "--wallet.path",
    "network": "--subtensor.network",
}


class SettingsCommand(TyperCommand):
    """Shows every setting in its help and completes it, and leaves reading them to `neurons.node.settings`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help with one option for each setting, grouped."""
        super(SettingsCommand, self._with_settings()).format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Names of options, those of settings included."""
        return super(SettingsCommand, self._with_settings()).shell_complete(ctx, incomplete)

    def _with_settings(self) -> SettingsCommand:
        shown = copy.copy(self)
        shown.params = [*self.params, *setting_options()]
        return shown


def setting_options() -> list[Any]:
    """One option for each setting that a flag can give, in the order and under the headings of `GROUPS`."""
    from neurons.node.settings import Settings

    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                str | None,
                typer.Option(
                    _FLAGS.get(name, f"--{name.replace('_', '-')}"),
                    help=Settings.model_fields[name].description,
                    metavar="VALUE",
                    rich_help_panel=group,
                    autocompletion=_values_of(name),
                ),
            ],
        )
        for group, names in GROUPS.items()
        for name in names
    ]

    def settings() -> None:
        """Only its signature is read."""

    vars(settings)["__signature__"] = inspect.Signature(parameters)
    shown = typer.Typer(add_completion=False)
    shown.command()(settings)
    return list(typer.main.get_command(shown).params)


def _values_of(name: str) -> Callable[[str], list[str]]:
    """What completion offers for a setting: policies, or the words that its type allows."""
    from typing import get_args

    from neurons.cli.options import complete_policy
    from neurons.node.settings import Settings

    if name == "policy":
        return complete_policy
    words = [word for word in get_args(Settings.model_fields[name].annotation) if isinstance(word, str) and word]
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]
