"""What a sentence of the model mentions: words, numbers, prices, services, and places ("the first", "the other").

Pure, linear in the text, and blind to any result. Prices and services are read in the languages of the
catalogue's countries (English, Chinese, Thai, Spanish, Vietnamese, Tagalog, Malay); a phrase is looked up in folded
text (`judge.evidence.tokens.fold`).
"""

from __future__ import annotations

import functools
import itertools
import re

import msgspec

from judge.evidence.tokens import fold, is_exact, numbers_in, plain_number, tokenise

_END = re.compile(r"(?<=[.!?])\s+|[\n。！？；;]+")
_PRICE = re.compile(
    r"[$€£¥₱฿₫₹]|\b(?:php|p(?=\d)|pesos?|piso|usd|dollars?|bucks?|eur|euros?|baht|dong|vnd|sgd|myr|rm|ringgit|rp|idr|"
    r"rupiah|yuan|rmb|cny|price[ds]?|costs?|cheap|cheaper|cheapest|expensive|dearer|pay|precios?|cuestan?|vale|"
    r"baratos?|baratas?|"
    r"caros?|caras?|gia|re hon|dat hon|presyo|mura|mahal|halaga|harga|murah)\b"
    r"|元|块|圆|价|贵|便宜|บาท|ราคา|ถูกกว่า|แพงกว่า"
)
_WITH_CENTS = re.compile(r"(?<![\d.,])\d+(?:[.,]\d{3})*[.,]\d{2}(?![\d.,]*\d)")
_SERVICES = {
    "official": r"\blazmall\b|\bofficial (?:store|shop|seller)\b|\btienda oficial\b|官方|旗舰店|"
    r"\bchinh hang\b|ร้านทางการ",
    "freeShipping": r"\bfree ?-?(?:shipping|delivery|ship)\b|\bships? (?:for )?free\b|\benvio (?:gratis|gratuito)\b|"
    r"包邮|免运费|免邮|ส่งฟรี|"
    r"\bmien phi (?:van chuyen|giao hang|ship)\b|\blibreng (?:pagpapadala|shipping|delivery)\b|"
    r"\bgratis (?:ongkir|ongkos kirim)\b|\bpenghantaran percuma\b",
    "cod": r"\bcod\b|\bcash on delivery\b|\bcontra ?reembolso\b|\bcontra entrega\b|货到付款|เก็บเงินปลายทาง|"
    r"\bthanh toan khi nhan\b|\bbayar di tempat\b|\bbayad sa paghahatid\b",
    "flashsale": r"\bflash ?sale\b|\blazflash\b|\bventa flash\b|闪购|限时抢购|แฟลชเซล",
}
_SERVICE = re.compile("|".join(f"(?P<{name}>{phrases})" for name, phrases in _SERVICES.items()))
_COUNTED = r"(?:option|product|item|candidate|row|line|number|no\.|opcion|producto|fila|san pham)"
_NO_CANDIDATE = (
    r"(?! (?:page|step|thing|time|place|hand|side|search|quer|result page|request|requirement|sight|glance|task|job|"
    r"day|way|half|part|gate|vez|lugar|pagina|paso|lan))"
)
_ONE = re.compile(
    rf"\bthe (?:first|former|1st)\b{_NO_CANDIDATE}|(?:\b{_COUNTED} ?|#)(?:1|one|a)\b|"
    rf"\b(?:el primero|la primera|el primer)\b{_NO_CANDIDATE}|第一[个款件条种]|前者|首款|"
    r"\b(?:cai|chiec|san pham|mau) (?:dau tien|thu nhat|dau)\b|"
    r"(?:ตัว|ชิ้น|อัน|สินค้า)(?:แรก|ที่หนึ่ง|ที่ 1)|\bang (?:una|nauna)\b|\byang pertama\b"
)
_OTHER = re.compile(
    rf"\bthe (?:second|third|fourth|last|latter|2nd|3rd|others?|rest|remaining)\b{_NO_CANDIDATE}|(?:\b{_COUNTED} ?|#)"
    rf"(?:[2-9]|two|three|b|c)\b|\b(?:el segundo|la segunda|el otro|la otra|los otros|las otras|los demas|las demas)\b"
    rf"{_NO_CANDIDATE}|第[二三四][个款件条种]|后者|另[一外][个款件条种]|其[他它余]|"
    r"\b(?:cai|chiec|san pham|mau) (?:thu hai|thu ba|kia|con lai)\b|(?:ตัว|ชิ้น|อัน|สินค้า)(?:ที่สอง|ที่สาม|ที่ 2|อื่น|หลัง)|"
    r"อีก(?:ตัว|ชิ้น|อัน)|\bang (?:ikalawa|pangalawa|isa pa|iba)\b|\byang (?:kedua|lain)\b"
)


class Sentence(msgspec.Struct, frozen=True):
    """One sentence: its tokens in order, all marks that can mean a product or a datum, and places in a list.

    A mark is a token, two adjacent tokens joined by a space, `~` and a number that is said as a price, or `=` and a
    service in lower case.
    """

    tokens: tuple[str, ...]
    marks: frozenset[str]
    is_first: bool
    is_other: bool


@functools.lru_cache(512)
def sentences(text: str) -> tuple[Sentence, ...]:
    """The sentences of `text`, in order; lines are sentences too."""
    found: list[Sentence] = []
    for part in _END.split(text):
        if not part or part.isspace():
            continue
        folded = fold(part)
        tokens, numbers = tokenise(folded), numbers_in(folded)
        marks = {*tokens, *numbers, *(f"{one} {two}" for one, two in itertools.pairwise(tokens))}
        if _PRICE.search(folded):
            marks |= {f"~{number}" for number in numbers}
        marks |= {f"~{plain_number(number)}" for number in _WITH_CENTS.findall(folded)}
        marks |= {f"={service.lastgroup}".lower() for service in _SERVICE.finditer(folded) if service.lastgroup}
        is_first, is_other = _ONE.search(folded) is not None, _OTHER.search(folded) is not None
        found.append(Sentence(tokens, frozenset(marks), is_first, is_other))
    return tuple(found)


def whole_sentences(quote: str, text: str) -> str:
    """The sentences of `text` that `quote` stands in, white space aside: a quote that was cut in the middle of a number
    or a phrase says what the whole says. Empty when it does not stand there."""
    found = re.search(r"\s+".join(map(re.escape, quote.split())), text)
    if found is None:
        return ""
    ends = [0, *(end.end() for end in _END.finditer(text)), len(text)]
    start = max(end for end in ends if end <= found.start())
    return text[start : min(end for end in ends if end >= found.end())]


def service_mark(service: str) -> str:
    """The mark of a service that a product offers."""
    return f"={service.lower()}"


def price_marks(price: float, exact: str) -> frozenset[str]:
    """How people may write a price: to the cent, without cents, or rounded to two or three digits. `exact` is its plain
    number. A price of fewer than three significant digits counts where the sentence speaks of prices."""
    marks = {f"~{exact}"}
    if is_exact(exact):
        marks.add(exact)
    if 10 <= price < 1e12:
        rounded: set[float] = {int(price), round(price)}
        digits = len(str(int(price)))
        rounded |= {round(price, keep - digits) for keep in (2, 3) if digits > keep}
        marks |= {f"~{int(number)}" for number in rounded}
    return frozenset(marks)
