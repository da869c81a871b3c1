"""Word lists of the capability rules: what may be taken from which module, and which names nobody may write.

An import allow-list alone confines nothing: modules re-export others. The lists are the modules' public names without
what evaluates text, opens files, hands out frames, starts processes, or reads and writes attributes by data. They are
part of the rules' version: change both together.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _table(text: str) -> dict[str, frozenset[str]]:
    rows: dict[str, str] = {}
    module = ""
    for line in text.strip().split("\n"):
        if not line.startswith(" "):
            module, _, line = line.partition(":")
        rows[module] = f"{rows.get(module, '')} {line}"
    return {module: _words(names) for module, names in rows.items()}


# `asyncio` without its loops, which start processes; `arena_sdk` and `src` are the agent's own world; `requests`,
# `urllib.request`, `os.environ` and log files are the guest's stand-ins: the host's own paths, or nothing.
MODULES = _table(
    """
__future__: absolute_import all_feature_names annotations barry_as_FLUFL division generator_stop generators
    nested_scopes print_function unicode_literals with_statement
abc: ABC ABCMeta abstractclassmethod abstractmethod abstractproperty abstractstaticmethod
asyncio: ALL_COMPLETED BoundedSemaphore CancelledError Event FIRST_COMPLETED FIRST_EXCEPTION LifoQueue Lock
    PriorityQueue Queue QueueEmpty QueueFull Semaphore TaskGroup TimeoutError as_completed create_task gather
    iscoroutine iscoroutinefunction run shield sleep to_thread wait wait_for
bisect: bisect bisect_left bisect_right insort insort_left insort_right
calendar: Calendar FRIDAY HTMLCalendar IllegalMonthError IllegalWeekdayError LocaleHTMLCalendar LocaleTextCalendar
    MONDAY SATURDAY SUNDAY THURSDAY TUESDAY TextCalendar WEDNESDAY calendar day_abbr day_name firstweekday isleap
    leapdays month month_abbr month_name monthcalendar monthrange prcal prmonth setfirstweekday timegm weekday
    weekheader
cmath: acos acosh asin asinh atan atanh cos cosh e exp inf infj isclose isfinite isinf isnan log log10 nan nanj
    phase pi polar rect sin sinh sqrt tan tanh tau
collections: ChainMap Counter OrderedDict UserDict UserList UserString defaultdict deque namedtuple
collections.abc: AsyncGenerator AsyncIterable AsyncIterator Awaitable ByteString Callable Collection Container
    Coroutine Generator Hashable ItemsView Iterable Iterator KeysView Mapping MappingView MutableMapping
    MutableSequence MutableSet Reversible Sequence Set Sized ValuesView
concurrent.futures: ALL_COMPLETED BrokenExecutor CancelledError Executor FIRST_COMPLETED FIRST_EXCEPTION Future
    ThreadPoolExecutor TimeoutError as_completed wait
contextlib: AbstractAsyncContextManager AbstractContextManager AsyncExitStack ContextDecorator ExitStack aclosing
    asynccontextmanager closing contextmanager nullcontext suppress
csv: Dialect DictReader DictWriter Error QUOTE_ALL QUOTE_MINIMAL QUOTE_NONE QUOTE_NONNUMERIC Sniffer excel excel_tab
    field_size_limit reader unix_dialect writer
dataclasses: FrozenInstanceError InitVar KW_ONLY MISSING asdict astuple dataclass field fields is_dataclass replace
datetime: MAXYEAR MINYEAR UTC date datetime time timedelta timezone tzinfo
decimal: BasicContext Clamped Context ConversionSyntax Decimal DecimalException DecimalTuple DefaultContext
    DivisionByZero DivisionImpossible DivisionUndefined ExtendedContext FloatOperation HAVE_CONTEXTVAR HAVE_THREADS
    Inexact InvalidContext InvalidOperation MAX_EMAX MAX_PREC MIN_EMIN MIN_ETINY Overflow ROUND_05UP ROUND_CEILING
    ROUND_DOWN ROUND_FLOOR ROUND_HALF_DOWN ROUND_HALF_EVEN ROUND_HALF_UP ROUND_UP Rounded Subnormal Underflow
    getcontext localcontext setcontext
difflib: Differ HtmlDiff IS_CHARACTER_JUNK IS_LINE_JUNK Match SequenceMatcher context_diff diff_bytes
    get_close_matches ndiff restore unified_diff
enum: CONFORM CONTINUOUS EJECT Enum EnumCheck Flag FlagBoundary IntEnum IntFlag KEEP NAMED_FLAGS ReprEnum STRICT
    StrEnum UNIQUE auto member nonmember unique verify
fractions: Fraction
functools: cache cached_property cmp_to_key lru_cache partial reduce total_ordering wraps
graphlib: CycleError TopologicalSorter
hashlib: algorithms_available algorithms_guaranteed blake2b blake2s md5 new pbkdf2_hmac sha1 sha224 sha256 sha384
    sha3_224 sha3_256 sha3_384 sha3_512 sha512 shake_128 shake_256
heapq: heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest
hmac: HMAC compare_digest digest new
html: escape unescape
itertools: accumulate chain combinations combinations_with_replacement compress count cycle dropwhile filterfalse
    groupby islice pairwise permutations product repeat starmap takewhile tee zip_longest
json: JSONDecodeError JSONDecoder JSONEncoder dump dumps load loads
json.decoder: JSONDecodeError JSONDecoder
logging: BASIC_FORMAT CRITICAL DEBUG ERROR FATAL FileHandler Filter Formatter Handler INFO LogRecord Logger
    LoggerAdapter NOTSET NullHandler StreamHandler WARN WARNING addLevelName basicConfig critical debug disable
    error exception fatal getLevelName getLevelNamesMapping getLogger info log makeLogRecord warn warning
math: acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist e erf erfc exp exp2 expm1
    fabs factorial floor fmod frexp fsum gamma gcd hypot inf isclose isfinite isinf isnan isqrt lcm ldexp lgamma log
    log10 log1p log2 modf nan nextafter perm pi pow prod radians remainder sin sinh sqrt tan tanh tau trunc ulp
numbers: Complex Integral Number Rational Real
operator: abs add and_ attrgetter call concat contains countOf delitem eq floordiv ge getitem gt iadd iand iconcat
    ifloordiv ilshift imatmul imod imul index indexOf inv invert ior ipow irshift is_ is_not isub itemgetter
    itruediv ixor le length_hint lshift lt matmul methodcaller mod mul ne neg not_ or_ pos pow rshift setitem sub
    truediv truth xor
pprint: isreadable isrecursive pformat pp pprint saferepr
queue: Empty Full LifoQueue PriorityQueue Queue SimpleQueue
random: Random SystemRandom betavariate choice choices expovariate gammavariate gauss getrandbits getstate
    lognormvariate normalvariate paretovariate randbytes randint random randrange sample seed setstate shuffle
    triangular uniform vonmisesvariate weibullvariate
re: A ASCII DOTALL I IGNORECASE L LOCALE M MULTILINE Match NOFLAG Pattern RegexFlag S U UNICODE VERBOSE X compile
    error escape findall finditer fullmatch match purge search split sub subn template
secrets: SystemRandom choice compare_digest randbelow randbits token_bytes token_hex token_urlsafe
statistics: NormalDist StatisticsError correlation covariance fmean geometric_mean harmonic_mean linear_regression
    mean median median_grouped median_high median_low mode multimode pstdev pvariance quantiles stdev variance
string: Template ascii_letters ascii_lowercase ascii_uppercase capwords digits hexdigits octdigits printable
    punctuation whitespace
struct: Struct calcsize error iter_unpack pack unpack unpack_from
textwrap: TextWrapper dedent fill indent shorten wrap
threading: Barrier BoundedSemaphore BrokenBarrierError Condition Event Lock RLock Semaphore TIMEOUT_MAX Thread
    ThreadError Timer active_count current_thread enumerate get_ident get_native_id local main_thread
time: CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_MONOTONIC_RAW CLOCK_PROCESS_CPUTIME_ID CLOCK_REALTIME CLOCK_TAI
    CLOCK_THREAD_CPUTIME_ID altzone asctime clock_getres clock_gettime clock_gettime_ns ctime daylight
    get_clock_info gmtime localtime mktime monotonic monotonic_ns perf_counter perf_counter_ns process_time
    process_time_ns sleep strftime strptime struct_time thread_time thread_time_ns time time_ns timezone tzname
    tzset
traceback: format_exc format_exception format_exception_only format_tb print_exc print_exception print_last print_tb
typing: AbstractSet Annotated Any AnyStr AsyncContextManager AsyncGenerator AsyncIterable AsyncIterator Awaitable
    BinaryIO ByteString Callable ChainMap ClassVar Collection Concatenate Container ContextManager Coroutine Counter
    DefaultDict Deque Dict Final FrozenSet Generator Generic Hashable IO ItemsView Iterable Iterator KeysView List
    Literal LiteralString Mapping MappingView Match MutableMapping MutableSequence MutableSet NamedTuple Never
    NewType NoReturn NotRequired Optional OrderedDict ParamSpec Pattern Protocol Required Reversible Self Sequence
    Set Sized SupportsAbs SupportsBytes SupportsComplex SupportsFloat SupportsIndex SupportsInt SupportsRound
    TYPE_CHECKING Text TextIO Tuple Type TypeAlias TypeGuard TypeVar TypeVarTuple TypedDict Union Unpack ValuesView
    assert_never cast final get_args get_origin is_typeddict overload runtime_checkable
unicodedata: bidirectional category combining decimal decomposition digit east_asian_width is_normalized lookup
    mirrored name normalize numeric unidata_version
urllib.parse: DefragResult DefragResultBytes ParseResult ParseResultBytes SplitResult SplitResultBytes parse_qs
    parse_qsl quote quote_from_bytes quote_plus unquote unquote_plus unquote_to_bytes urldefrag urlencode urljoin
    urlparse urlsplit urlunparse urlunsplit
uuid: NAMESPACE_DNS NAMESPACE_OID NAMESPACE_URL NAMESPACE_X500 RESERVED_FUTURE RESERVED_MICROSOFT RESERVED_NCS
    RFC_4122 SafeUUID UUID uuid1 uuid3 uuid4 uuid5
warnings: catch_warnings filterwarnings resetwarnings simplefilter warn
zoneinfo: InvalidTZPathWarning ZoneInfo ZoneInfoNotFoundError available_timezones
arena_sdk: Reply ToolError llm tools
arena_sdk.llm: Reply chat models
arena_sdk.tools: JsonObject calculate_voucher call check_product_match execute find_product
    find_products_in_same_shop recommend_product schemas terminate view_product_information
src.agent.agent_interface: AgentOutput Tool ToolCallResult ToolResult _TOOL_REGISTRY create_dialogue_step
    execute_tool_call format_content generate_tool_call_id get_tool list_tools register_tool
src.agent.proxy_client: InferenceStats PostResult ProxyClient RequestLog
requests: ConnectTimeout ConnectionError HTTPError JSONDecodeError ReadTimeout RequestException Response Session
    Timeout get post request
requests.adapters: HTTPAdapter
requests.exceptions: ConnectTimeout ConnectionError HTTPError JSONDecodeError ReadTimeout RequestException Timeout
urllib.error: HTTPError URLError
urllib.request: Request urlopen
ast: literal_eval
inspect: cleandoc getdoc signature
io: StringIO
os: environ getenv
os.path: basename dirname exists join
sys: exit maxsize platform stderr stdout version version_info
types: MappingProxyType NoneType SimpleNamespace TracebackType UnionType
urllib:
concurrent:
src:
src.agent:
"""
)

DECODERS = _words("base64 binascii bz2 codecs gzip lzma marshal pickle quopri shelve tarfile uu zipfile zlib")
# Codecs that show a reader another text than the program gets, without their separators.
HIDING_CODECS = _words(
    """
    utf7 u7 unicode11utf7 punycode unicodeescape rawunicodeescape idna cp037 037 ibm037 cp273 cp424 cp500 500 ibm500
    cp875 cp1026 cp1140
    """
)

# -- names of builtins: refused whatever they mean in a file
BUILTINS = _words(
    """
    eval exec compile __import__ globals locals vars breakpoint open __builtins__ __loader__ __spec__ __build_class__
    """
)
# refused where nothing of the file's own has taken the name
COMMON_BUILTINS = _words("input help exit quit copyright credits license")
# called on the spot with a constant, never handed on
DIRECT_BUILTINS = _words("getattr setattr delattr super")
# tell of a class, or of an object's attributes, and hand neither on
TELLING_BUILTINS = _words("bool callable format hasattr hash id isinstance issubclass len print repr str")

# -- attributes
DUNDERS = _words(
    """
    __abs__ __add__ __aenter__ __aexit__ __all__ __and__ __author__ __bool__ __cause__ __class__ __contains__
    __context__ __copyright__ __credits__ __date__ __debug__ __delitem__ __doc__ __email__ __enter__ __eq__
    __exit__ __file__ __float__ __format__ __future__ __ge__ __getitem__ __gt__ __hash__ __iadd__ __init__
    __int__ __iter__ __le__ __len__ __license__ __lt__ __main__ __maintainer__ __missing__ __module__ __mul__
    __name__ __ne__ __neg__ __new__ __next__ __or__ __package__ __post_init__ __qualname__ __radd__ __repr__
    __reversed__ __setitem__ __slots__ __status__ __str__ __sub__ __traceback__ __truediv__ __version__
    """
)
# A class may also define these: the interpreter calls them, and none leads anywhere by itself.
DEFINED_DUNDERS = DUNDERS | _words(
    """
    __aiter__ __anext__ __await__ __bytes__ __call__ __ceil__ __complex__ __copy__ __deepcopy__ __del__
    __delattr__ __delete__ __dir__ __divmod__ __floor__ __floordiv__ __get__ __getattr__ __getnewargs__
    __getstate__ __iand__ __ifloordiv__ __ilshift__ __imatmul__ __imod__ __imul__ __index__ __invert__ __ior__
    __ipow__ __irshift__ __isub__ __itruediv__ __ixor__ __length_hint__ __lshift__ __matmul__ __mod__ __pos__
    __pow__ __rand__ __rdivmod__ __rfloordiv__ __rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__ __round__
    __rpow__ __rrshift__ __rshift__ __rsub__ __rtruediv__ __rxor__ __set__ __setattr__ __sizeof__ __trunc__
    __xor__
    """
)
# These see an object's attributes, or a class before it is finished: a person looks.
SEEING_DUNDERS = _words("__init_subclass__ __set_name__ __setstate__")
# Of frames, code objects, tasks and helpers of the standard library: refused as any name and as any whole text.
REFUSED = _words(
    """
    ForwardRef _convert_ _create_ _evaluate _get_loop _getframe _module ag_await ag_code ag_frame ag_running
    co_code co_consts co_names co_varnames cr_await cr_code cr_frame cr_origin eval_str f_back f_builtins f_code
    f_globals f_locals f_trace from_callable func_code func_globals get_type_hints gi_code gi_frame gi_yieldfrom
    tb_frame tb_lasti tb_next
    """
)
# Refused as attributes, keywords and constants given to getattr.
ATTRIBUTES = REFUSED | _words(
    "detach environ fromhex get_coro get_loop get_stack lastResort meta_path mro popen print_stack"
)
# Modules that others re-export, with and without underscores.
REEXPORTS = _words(
    """
    builtins codecs ctypes gc importlib linecache marshal multiprocessing os pickle posix runpy shutil socket
    subprocess sys
    """
)
# Plausible names of an agent's own fields that could also lead on: a module, what a lock hangs on, the object that a
# failed look-up names, the attribute that a cached property reads.
HELD_ATTRIBUTES = _words("attrname inspect io obj _loop")
# Dunders that lead on, where a text names one.
LEADING_DUNDERS = _words(
    """
    __abstractmethods__ __annotations__ __base__ __bases__ __breakpointhook__ __build_class__ __builtins__
    __class_getitem__ __closure__ __code__ __dict__ __displayhook__ __excepthook__ __func__ __getattribute__
    __globals__ __import__ __init_subclass__ __instancecheck__ __kwdefaults__ __loader__ __match_args__ __mro__
    __mro_entries__ __objclass__ __prepare__ __reduce__ __reduce_ex__ __self__ __self_class__ __signature__
    __spec__ __stderr__ __stdin__ __stdout__ __subclasscheck__ __subclasses__ __subclasshook__
    __text_signature__ __thisclass__ __unraisablehook__ __wrapped__
    """
)


def is_refused_attribute(name: str) -> bool:
    """A dunder outside the allow-list, an attribute of frames, tasks or the process, or a module that others hold."""
    is_dunder = name.startswith("__") and name.endswith("__") and len(name) > 4
    return (is_dunder and name not in DUNDERS) or name in ATTRIBUTES or name.lstrip("_") in REEXPORTS
