"""What a sentence mentions: words, numbers, prices, services, and places ("the first", "the other").

Pure, linear in the text, and blind to any result. Case, accents, compatibility forms and simple endings (plural, -ing,
-ed, a last vowel) are undone, so a title quoted in part or in the plural is still found. Scripts that set no space
between words give overlapping runs of characters instead: two of Han, four of Thai, Lao, Burmese, Khmer and kana.
Prices and services are read in the languages of the catalogue's countries (English, Chinese, Thai, Spanish,
Vietnamese, Tagalog, Malay).
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata

import msgspec

from harness.emission.wording import compose

# Field names of the tools' results and glue words: a pair with one of these proves nothing.
NO_DATA = """
product products id ids shop title price service services sku options option attributes attribute sold count
brand category short description specification result results error true false null none found match matches a
an the and or of in on at to for from with by is are was be it its this that these those as not no new el la
los las un una de y o en con por para que es su del al se no lo mas ng sa ang na mga ay at dan yang di ke dari
untuk và của là cho có với
"""

_ENGLISH = """
able about above absence absolutely accept acceptable access according account accurate across action actual actually
adding addition additional additionally adds after again against ahead alike allow almost alone along already also
alternative although always among amount analyse analysis another answer anybody anyone anything anyway apart appear
applicable application apply approach appropriate approved area around arrive aside asked asking asks aspect assistant
assume attached available average avoid away back bare base based basic basically basket because become been before
begin behind being believe below benefit beside best better between beyond body both bottom bring broken budget build
built business button buyer buying call called came candidate cannot care careful carefully carry case cases cause cell
centre certain certainly change character charge cheap cheaper cheapest check choice choose chose chosen claim clean
clear clearly close closer closest code coefficient color colour column combination combine come common company
comparable comparative compare comparison compatible complete completely completion computer conclude conclusion
condition confident confirm connect consider consistent constant construction contain content continue convenience
convenient copy core correct correctly cost could countries course cover create criteria criterion critical cross
current currently custom customer data date days deal decide decision deep default definitely deliver delivery demand
depend design desired detail determine development device differ difference different differently difficult digital
dimension direct direction directly discount distance document does doing dollars done double doubt down drop due
during each earlier early easier easily easy edge effect effective efficient effort either element else empty enable
end ends enough ensure enter entire entirely entity entry equal equally equivalent especially essential even evenly
event eventually ever every everybody everyone everything evidence exact exactly example excellent except exceed expect
expensive experience explain express extend extra extreme face fact factor fair fairly fall fast faster feature feel
fewer field fill filled filter final finalise finally find fine finish first fits five fixed flawless follow force
forget form format former forward four frame free frequently fresh friendly front fulfil fulfill full fully function
functional further future gate general generally generic gets getting give given giving glance goal goes going good
google great greater grounded group guess guide guarantee half hand handle happen happy hard hardly have having head
heard height held hello help helpful hence here high higher highest highly hold hope hour however ideal ideally
identical identify ignore image imagine immediate immediately important improve include incomplete incorrect increase
indeed independent individual information initial input inside install instance instead instruction intended interest
international introduction involve issue item itself join judge just keep kept kind know known label lack language
large larger largest last late later latest latter lead least leave left length less level light lightweight like
likely likewise limit line link list little live load local location logical long longer longest look lose loss lost
lots love lovely lower lowest machine made main mainly maintain major make making manner manual manufacturer many mark
market material matter maximum maybe mean meant meanwhile measure meet mention message method middle might mind minimum
minor minute miss missing mode model moment money month more moreover most mostly move much multiple must name named
namely native natural near nearest nearly necessary need negative neither network never nevertheless next nice nobody
normal normally note noted nothing notice number object obvious obviously occur offer office often okay once ones
online only onto open operating opinion order ordinary original other otherwise outcome output outside outstanding over
overall overview own page pair part particular particularly party pass passed past patient patiently pattern pays
people percent perfect perfectly perform performance perhaps period person personal phase physical pick picture piece
place plain plan please plus point poor popular portion position positive possible possibly potential power practical
precise precisely prefer preferable preference premium present press pretty prevent previous previously primary
principle print probably problem procedure proceed proceeded process produce production program promise proper properly
properties protect protection proves provide public purchase pure purpose quality quantity question quick quicker
quickly quite range rank rate rather rating reach read reader ready real reality really reason reasonable reasonably
receive recommend recommendation record reduce refer reference regard regardless regular related relative relatively
release relevant reliable remain remember remove repeat replace reply report request require requirement respect
response responsible rest return review right rigorous room round rule running safe said sale same sample satisfied
satisfies save says scale score search second section seem seen select selection sell seller send sense sensible sent
separate separately serious serve session sets setting seven several shall shape share sharp ship shopper shorter
should show shown side sign significant similar similarly simple simply since single situation size sized sizes
slightly slow small smaller smallest smart smooth solid solution some somebody somehow someone something sometimes
somewhat soon sort sound source space span speak special specific specifically specified speed spend standard start
state statement status stay step still stop storage store straight strange strict strictly strong stronger strongly
structure style subject such sufficient suggest suit suitable super superb supply support suppose sure surely system
table take taken taking talk target task team technical technology tell term test text than thank their them themselves
then there therefore they thick thin thing think third though thought thousand three through throughout thus time today
together told took tool total totally touch toward trace track trade traditional treat tried truly trust turn twice
type typical typically ultimate under understand unfortunately unique unit universal unless unlike until upon upper
usage used useful user uses using usual usually valid valuable value variant variety various vendor verdict verified
verify version very view vital voucher wait want warning warranty watch ways week weigh weight well went were what
whatever when whenever where whereas whether which whichever while whole whose wide wider width will wise wish within
without word work world worse worst worth worthwhile would write written wrong year yesterday young your yourself zero
affordable beautiful buy bought eight hundred nine nineteen six ten twelve twenty thirty fifty job jobs pesos planner
top two one yes
"""

_OTHERS = """
además ahora alguna antes aquí asimismo aunque barata busca buscar cada calidad cara caro comparar compra comprar como
comparación comprador creo cualquier cuando cuesta cuestan cumple cuidado dado debe decir desde después dice donde
elegir elijo entonces entre envío esa ese esta estaba este espera esto excelente falta finalmente hacer hacia hasta
hecho luego mayor mejor menos menor mientras mismo muy necesita ninguna nada opción otra otro parece pedido pero poco
porque precio previsto primer principio puede pues quiere razón recomendar recomiendo requisito resultado segunda
según seguir siempre sigo siguiente sobre solo también tanto tener termino tengo tiempo tiene tienen toda todo trabajo
último usuario vale vamos anh bạn bằng bây bước các cái cần chỉ chiếc chọn chúng cũng danh sách dùng đã đang đầu đây
đến đó được giá giờ hai hàng hoặc hoàn thành hợp hơn hoạch kết quả khác khách không lại làm lựa mà mình một mua muốn
này nên nếu người nhất nhiều như nhưng phẩm phù rất rẻ rồi sản sánh sau so tất cả tốt theo thì thứ tiếp tục tìm tôi
trong trước từ tuyệt vậy về vẫn vì việc yêu cầu ako alin aking dahil din dito gusto hindi ibang ito itong iyon
kailangan kasi kaya kung kaysa lang lahat maganda mahal may mura muna naman namin natin pareho pipiliin piliin puwede
pwede sana sulit talaga tapos tayo wala yung adalah agar akan atau bagus barang belum bisa cocok dalam dengan harga
ini itu jadi juga kami kalau karena kita kualitas lagi lain lebih mana masih memilih mencari murah pada paling pembeli
pilih pilihan saya sangat sesuai semua sudah tapi tetapi tidak 好的 现在 我们 继续 清单 单上 下一 一件 件事 按计 计划
划完 完成 成这 这个 任务 然后 给出 推荐 出推 比较 较了 所有 商品 有商 产品 第一 一个 第二 二个 更好 因为 它更 更便
便宜 所以 选择 用户 要求 符合 合要 更符 价格 结果 搜索 查看 可以 需要 不需 要再 看了 很好 完全 全符 非常 质量 满足
购买 最好 最佳 而且 但是 如果 没有 这款 那款 这条 那条 一条 另一 另外 其他 前者 后者 仔细 细比 考虑 认为 应该 已经
还是 以及 或者 同时 首先 其次 最后 其中 目前 适合 合适 优质 高质 性价 价比 一款 款商 包邮 品质 推荐这 เอาล่ะ ตอนนี้
ฉันจะ ทำงาน ต่อไป ตามรายการ และทำให้เสร็จ ตามแผน สินค้า ราคา ถูกกว่า ดีกว่า เพราะ ดังนั้น เลือก แนะนำ ผู้ใช้ ต้องการ
ค้นหา ผลลัพธ์ ตัวแรก ตัวที่สอง เหมาะ เหมาะสม คุณภาพ เปรียบเทียบ ทั้งหมด ชิ้นแรก ตรงตาม ความต้องการ งบประมาณ จึงเลือก
ขอแนะนำ
"""

ORDINARY = _ENGLISH + _OTHERS


_HAN = "\u3400-\u9fff\uf900-\ufaff"
_UNSPACED = "\u0e00-\u0e4f\u0e5a-\u0ecf\u0eda-\u0eff\u1000-\u103f\u1050-\u109f\u1780-\u17df\u3040-\u30ff"
_TOKEN = re.compile(rf"\d+(?:[.,]\d+)*|[{_HAN}]+|[{_UNSPACED}]+|[^\W\d_{_HAN}{_UNSPACED}]+")
_ASCII_TOKEN = re.compile(r"[0-9]+(?:[.,][0-9]+)*|[a-z]+")
_RUN = re.compile(rf"[{_HAN}{_UNSPACED}]")
_HAN_SIZE, _UNSPACED_SIZE = 2, 4
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_NO_GAPS = str.maketrans("", "", " '’")
_ACCENT = re.compile("[\u0300-\u036f]")
_CONTINENTAL = re.compile(r"\d{1,3}(?:\.\d{3})*,\d{1,2}|\d{1,3}(?:\.\d{3}){2,}|\d+,\d{1,2}")
_GROUPED = re.compile(r",(?=\d{3}\b)")
_GROUPED_BY_POINT = re.compile(r"(?<![\d.,])\d{1,3}\.\d{3}(?![\d.,]*\d)")
_GROUPED_BY_SPACE = re.compile(r"(?<![\d.,])\d{1,3}(?:[ '’]\d{3})+(?:[.,]\d{1,2})?(?![\d.,]*\d)")
_SCALED = re.compile(r"(?<![\d.,])(\d+(?:[.,]\d+)*)\s?(k|nghin|ngan|mil|thousand|万|trieu)(?![a-z])")
_SCALES = {"万": 10_000, "trieu": 1_000_000}
_VOWELS = frozenset("aeiouy")
_WORD_MIN, _NUMBER_DIGITS = 4, 3


def fold(text: str) -> str:
    """`text` in lower case, without accents and compatibility forms."""
    if text.isascii():
        return text.lower()
    bare = _ACCENT.sub("", unicodedata.normalize("NFD", compose("NFKC", text).casefold()))
    return unicodedata.normalize("NFC", bare).replace("đ", "d")


def tokenise(text: str) -> tuple[str, ...]:
    """Words and numbers in order. Numbers lose thousands separators and zero decimals, in either notation: `1,299.00`
    and `1.299,00` are `1299`."""
    return _tokens_of(fold(text))


def spoken_in(text: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """The tokens of `text` in order, and every number that it may mean."""
    folded = fold(text)
    return _tokens_of(folded), numbers_in(folded)


def _tokens_of(folded: str) -> tuple[str, ...]:
    if folded.isascii():
        return tuple([_stem(one) if one[0] > "9" else plain_number(one) for one in _ASCII_TOKEN.findall(folded)])
    tokens: list[str] = []
    for found in _TOKEN.findall(folded):
        first = found[0]
        if first.isdecimal():
            tokens.append(plain_number(found))
        elif first.isascii() or not _RUN.match(first):
            tokens.append(_stem(found))
        else:
            size = _HAN_SIZE if first >= "\u3400" else _UNSPACED_SIZE
            tokens += [found[start : start + size] for start in range(max(1, len(found) - size + 1))]
    return tuple(tokens)


def numbers_in(folded: str) -> frozenset[str]:
    """Every number that folded text may mean: `1.299` is also `1299`, so are `1 299` and `1'299`; `12k` is `12000`."""
    found = {plain_number(token) for token in set(_NUMBER.findall(folded))}
    found |= {token.replace(".", "") for token in _GROUPED_BY_POINT.findall(folded)}
    found |= {plain_number(token.translate(_NO_GAPS)) for token in set(_GROUPED_BY_SPACE.findall(folded))}
    for token, scale in _SCALED.findall(folded):
        number = plain_number(token)
        if number.count(".") <= 1 and len(number) < 16:
            found.add(f"{round(float(number) * _SCALES.get(scale, 1_000), 2):.15g}")
    return frozenset(found)


def is_exact(number: str) -> bool:
    """True for a number that nobody says by the way: three significant digits or more."""
    return len(number.replace(".", "").strip("0")) >= _NUMBER_DIGITS


def is_gram(token: str) -> bool:
    """True for a run of characters of a script without spaces."""
    return _RUN.match(token) is not None


def is_telling(token: str) -> bool:
    """True for a word or run that can mean a thing by itself: long enough, or the short name of a brand (no vowel in
    it), and nobody's everyday word."""
    if token in EVERYDAY or token[0].isdecimal():
        return False
    if is_gram(token):
        return len(token) >= (_HAN_SIZE if token[0] >= "\u3400" else _UNSPACED_SIZE)
    return len(token) >= _WORD_MIN or (len(token) == _WORD_MIN - 1 and _VOWELS.isdisjoint(token))


def says_nothing(token: str) -> bool:
    """True for glue, field names and single letters: a pair with one of these is no datum."""
    return token in _NOTHING or (len(token) == 1 and not token.isdigit())


def plain_number(token: str) -> str:
    """A number as its plain ASCII digits, a point before decimals."""
    if token.isascii() and token.isdigit():
        return token
    if not token.isascii():
        token = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else "" if c not in ".," else c for c in token)
    if ("," in token or token.count(".") > 1) and _CONTINENTAL.fullmatch(token):
        token = token.replace(".", "").replace(",", ".")
    plain = _GROUPED.sub("", token) if "," in token else token
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


@functools.lru_cache(1 << 16)
def _stem(word: str) -> str:
    """A word without its simple endings: the same for `scarf` and `scarves`, `clip` and `clipped`."""
    if len(word) <= _WORD_MIN or not word.isascii():
        return word
    if word.endswith("ies"):
        word = word[:-3] + "y"
    elif word.endswith(("ses", "xes", "zes", "ches", "shes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) >= len(ending) + 4:
            word = word[: -len(ending)]
            word = word[:-1] if word[-1] == word[-2] else word
            break
    if word[-1] in "aeo" and len(word) > _WORD_MIN:
        word = word[:-1]
    return word[:-1] + "v" if word[-1] == "f" else word


_NOTHING = frozenset(tokenise(NO_DATA))
EVERYDAY = _NOTHING | frozenset(tokenise(ORDINARY))


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
