"""Dirt for the synthetic catalogue: the faults real documents have, in about the shares they have them.

Shares follow docs/benchmark.md#statistics. Dirt never makes a document malformed: strings stay strings and lists stay
lists, so everything here can be indexed, searched, viewed and scored.
"""

from __future__ import annotations

from harness.catalogue.synthetic.words import Dice, MarketVocabulary

Attributes = dict[str, tuple[str, ...]]
Options = dict[str, dict[str, str]]


def soil_title(title: str, dice: Dice, words: MarketVocabulary) -> str:
    """Foreign words, emoji, brackets, capitals, double spaces and broken encodings, each in a few percent."""
    if dice.chance(0.045):
        title = f"{title} {dice.pick(words.tagalog)}"
    if dice.chance(0.01):
        title = f"{dice.pick(words.cjk)} {title}"
    if dice.chance(0.02):
        title = f"{dice.pick(words.emoji)}{title}"
    if dice.chance(0.02):
        title = f"{dice.pick(words.brackets)} {title}"
    if dice.chance(0.03):
        title = title.upper()
    if dice.chance(0.05):
        title = title.replace(" ", "  ", 1)
    if dice.chance(0.015):
        title = title.replace(" ", f" {dice.pick(words.dirt.mojibake)}", 1)
    return title


def soil_text(text: str, dice: Dice, words: MarketVocabulary) -> str:
    """A broken character or a literal escape somewhere in a longer text."""
    if text and dice.chance(0.12):
        place = dice.below(len(text))
        mark = dice.pick(words.dirt.mojibake) if dice.chance(0.7) else dice.pick(words.dirt.escapes)
        return text[:place] + mark + text[place:]
    return text


def soil_attributes(attributes: Attributes, dice: Dice, words: MarketVocabulary) -> Attributes:
    """Placeholders, logistics, wrong keys, empty lists, near-duplicate keys and literal escapes."""
    soiled, dirt = dict(attributes), words.dirt
    if soiled and dice.chance(0.05):
        soiled[dice.pick(list(soiled))] = (dice.pick(dirt.values),)
    if dice.chance(0.03):
        key = dice.pick(list(dirt.logistics))
        soiled[key] = (dice.pick(dirt.logistics[key]),)
    if dice.chance(0.04):
        key = dice.pick(list(dirt.wrong))
        soiled.setdefault(key, (dice.pick(dirt.wrong[key]),))
    if soiled and dice.chance(0.01):
        soiled[dice.pick(list(soiled))] = ()
    twins = [key for key in soiled if key in dirt.near_keys]
    if twins and dice.chance(0.04):
        key = dice.pick(twins)
        soiled[dirt.near_keys[key]] = soiled[key]
    if soiled and dice.chance(0.015):
        key = dice.pick(list(soiled))
        soiled[key] = tuple(f"{value}{dice.pick(dirt.escapes)}" for value in soiled[key])
    if soiled and dice.chance(0.004):
        soiled["compatible_models"] = tuple(f"model {number}" for number in range(1, dice.between(8, 29)))
    return soiled


def soil_options(options: Options, dice: Dice, words: MarketVocabulary) -> Options:
    """Now and then a literal escape in one option, or a key written with a blank for its underscore."""
    if not options or not dice.chance(0.04):
        return options
    number = dice.pick(list(options))
    key = dice.pick(list(options[number]))
    soiled = {name: dict(option) for name, option in options.items()}
    value = soiled[number].pop(key)
    if dice.chance(0.5):
        soiled[number][words.dirt.near_keys.get(key, key)] = value
    else:
        soiled[number][key] = f"{value} {dice.pick(words.dirt.escapes)}"
    return soiled
