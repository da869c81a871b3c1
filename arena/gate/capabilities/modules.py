"""What an agent may take from each module. An import allow-list alone confines nothing: modules re-export others.

The lists are the modules' public names without what evaluates text, opens files, hands out frames or starts processes.
They are part of the rules' version: change both together.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MODULES: dict[str, frozenset[str]] = {
    "__future__": _words(
        """
        absolute_import all_feature_names annotations barry_as_FLUFL division generator_stop generators
        nested_scopes print_function unicode_literals with_statement
        """
    ),
    "abc": _words(
        """
        ABC ABCMeta abstractclassmethod abstractmethod abstractproperty abstractstaticmethod
        """
    ),
    # no way to the loop itself, which starts processes and opens sockets
    "asyncio": _words(
        """
        ALL_COMPLETED BoundedSemaphore CancelledError Event FIRST_COMPLETED FIRST_EXCEPTION LifoQueue Lock PriorityQueue
        Queue QueueEmpty QueueFull Semaphore TaskGroup TimeoutError as_completed create_task gather iscoroutine
        iscoroutinefunction run shield sleep to_thread wait wait_for
        """
    ),
    "bisect": _words("bisect bisect_left bisect_right insort insort_left insort_right"),
    "calendar": _words(
        """
        Calendar FRIDAY HTMLCalendar IllegalMonthError IllegalWeekdayError LocaleHTMLCalendar LocaleTextCalendar
        MONDAY SATURDAY SUNDAY THURSDAY TUESDAY TextCalendar WEDNESDAY calendar day_abbr day_name firstweekday
        isleap leapdays month month_abbr month_name monthcalendar monthrange prcal prmonth setfirstweekday timegm
        weekday weekheader
        """
    ),
    "cmath": _words(
        """
        acos acosh asin asinh atan atanh cos cosh e exp inf infj isclose isfinite isinf isnan log log10 nan nanj
        phase pi polar rect sin sinh sqrt tan tanh tau
        """
    ),
    "collections": _words(
        """
        ChainMap Counter OrderedDict UserDict UserList UserString defaultdict deque namedtuple
        """
    ),
    "collections.abc": _words(
        """
        AsyncGenerator AsyncIterable AsyncIterator Awaitable ByteString Callable Collection Container Coroutine
        Generator Hashable ItemsView Iterable Iterator KeysView Mapping MappingView MutableMapping MutableSequence
        MutableSet Reversible Sequence Set Sized ValuesView
        """
    ),
    "concurrent.futures": _words(
        """
        ALL_COMPLETED BrokenExecutor CancelledError Executor FIRST_COMPLETED FIRST_EXCEPTION Future
        ThreadPoolExecutor TimeoutError as_completed wait
        """
    ),
    "contextlib": _words(
        """
        AbstractAsyncContextManager AbstractContextManager AsyncExitStack ContextDecorator ExitStack aclosing
        asynccontextmanager closing contextmanager nullcontext suppress
        """
    ),
    "copy": _words("Error copy deepcopy"),
    "csv": _words(
        """
        Dialect DictReader DictWriter Error QUOTE_ALL QUOTE_MINIMAL QUOTE_NONE QUOTE_NONNUMERIC Sniffer excel
        excel_tab field_size_limit get_dialect list_dialects reader register_dialect unix_dialect unregister_dialect
        writer
        """
    ),
    "dataclasses": _words(
        """
        FrozenInstanceError InitVar KW_ONLY MISSING asdict astuple dataclass field fields is_dataclass replace
        """
    ),
    "datetime": _words("MAXYEAR MINYEAR UTC date datetime time timedelta timezone tzinfo"),
    "decimal": _words(
        """
        BasicContext Clamped Context ConversionSyntax Decimal DecimalException DecimalTuple DefaultContext
        DivisionByZero DivisionImpossible DivisionUndefined ExtendedContext FloatOperation HAVE_CONTEXTVAR
        HAVE_THREADS Inexact InvalidContext InvalidOperation MAX_EMAX MAX_PREC MIN_EMIN MIN_ETINY Overflow
        ROUND_05UP ROUND_CEILING ROUND_DOWN ROUND_FLOOR ROUND_HALF_DOWN ROUND_HALF_EVEN ROUND_HALF_UP ROUND_UP
        Rounded Subnormal Underflow getcontext localcontext setcontext
        """
    ),
    "difflib": _words(
        """
        Differ HtmlDiff IS_CHARACTER_JUNK IS_LINE_JUNK Match SequenceMatcher context_diff diff_bytes
        get_close_matches ndiff restore unified_diff
        """
    ),
    "enum": _words(
        """
        CONFORM CONTINUOUS EJECT Enum EnumCheck EnumMeta EnumType Flag FlagBoundary IntEnum IntFlag KEEP NAMED_FLAGS
        ReprEnum STRICT StrEnum UNIQUE auto member nonmember pickle_by_enum_name pickle_by_global_name unique
        verify
        """
    ),
    "fractions": _words("Fraction"),
    "functools": _words(
        """
        WRAPPER_ASSIGNMENTS WRAPPER_UPDATES cache cached_property cmp_to_key lru_cache partial partialmethod reduce
        total_ordering wraps
        """
    ),
    "graphlib": _words("CycleError TopologicalSorter"),
    "hashlib": _words(
        """
        algorithms_available algorithms_guaranteed blake2b blake2s md5 new pbkdf2_hmac sha1 sha224 sha256 sha384
        sha3_224 sha3_256 sha3_384 sha3_512 sha512 shake_128 shake_256
        """
    ),
    "heapq": _words("heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest"),
    "hmac": _words("HMAC compare_digest digest new"),
    "html": _words("escape unescape"),
    "itertools": _words(
        """
        accumulate chain combinations combinations_with_replacement compress count cycle dropwhile filterfalse
        groupby islice pairwise permutations product repeat starmap takewhile tee zip_longest
        """
    ),
    "json": _words("JSONDecodeError JSONDecoder JSONEncoder dump dumps load loads"),
    "json.decoder": _words("JSONDecodeError JSONDecoder"),
    "logging": _words(
        """
        BASIC_FORMAT BufferingFormatter CRITICAL DEBUG ERROR FATAL FileHandler Filter Formatter Handler INFO LogRecord
        Logger LoggerAdapter NOTSET NullHandler StreamHandler WARN WARNING addLevelName basicConfig captureWarnings
        critical debug disable error exception fatal getLevelName getLevelNamesMapping getLogRecordFactory getLogger
        getLoggerClass info lastResort log makeLogRecord raiseExceptions setLogRecordFactory setLoggerClass shutdown
        warn warning
        """
    ),
    "math": _words(
        """
        acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist e erf erfc exp exp2
        expm1 fabs factorial floor fmod frexp fsum gamma gcd hypot inf isclose isfinite isinf isnan isqrt lcm ldexp
        lgamma log log10 log1p log2 modf nan nextafter perm pi pow prod radians remainder sin sinh sqrt tan tanh tau
        trunc ulp
        """
    ),
    "numbers": _words("Complex Integral Number Rational Real"),
    "operator": _words(
        """
        abs add and_ attrgetter call concat contains countOf delitem eq floordiv ge getitem gt iadd iand iconcat
        ifloordiv ilshift imatmul imod imul index indexOf inv invert ior ipow irshift is_ is_not isub itemgetter
        itruediv ixor le length_hint lshift lt matmul methodcaller mod mul ne neg not_ or_ pos pow rshift setitem
        sub truediv truth xor
        """
    ),
    "pprint": _words("PrettyPrinter isreadable isrecursive pformat pp pprint saferepr"),
    "queue": _words("Empty Full LifoQueue PriorityQueue Queue SimpleQueue"),
    "random": _words(
        """
        Random SystemRandom betavariate choice choices expovariate gammavariate gauss getrandbits getstate
        lognormvariate normalvariate paretovariate randbytes randint random randrange sample seed setstate shuffle
        triangular uniform vonmisesvariate weibullvariate
        """
    ),
    "re": _words(
        """
        A ASCII DOTALL I IGNORECASE L LOCALE M MULTILINE Match NOFLAG Pattern RegexFlag S U UNICODE VERBOSE X
        compile error escape findall finditer fullmatch match purge search split sub subn template
        """
    ),
    "secrets": _words(
        """
        SystemRandom choice compare_digest randbelow randbits token_bytes token_hex token_urlsafe
        """
    ),
    "statistics": _words(
        """
        NormalDist StatisticsError correlation covariance fmean geometric_mean harmonic_mean linear_regression mean
        median median_grouped median_high median_low mode multimode pstdev pvariance quantiles stdev variance
        """
    ),
    "string": _words(
        """
        Template ascii_letters ascii_lowercase ascii_uppercase capwords digits hexdigits octdigits printable
        punctuation whitespace
        """
    ),
    # numbers out of bytes, as `int.from_bytes` reads them too: a reviewer is shown the literal itself (`binary`)
    "struct": _words("Struct calcsize error iter_unpack pack unpack unpack_from"),
    "textwrap": _words("TextWrapper dedent fill indent shorten wrap"),
    "threading": _words(
        """
        Barrier BoundedSemaphore BrokenBarrierError Condition Event Lock RLock Semaphore TIMEOUT_MAX Thread
        ThreadError Timer active_count current_thread enumerate get_ident get_native_id local main_thread stack_size
        """
    ),
    "time": _words(
        """
        CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_MONOTONIC_RAW CLOCK_PROCESS_CPUTIME_ID CLOCK_REALTIME CLOCK_TAI
        CLOCK_THREAD_CPUTIME_ID altzone asctime clock_getres clock_gettime clock_gettime_ns ctime daylight
        get_clock_info gmtime localtime mktime monotonic monotonic_ns perf_counter perf_counter_ns process_time
        process_time_ns sleep strftime strptime struct_time thread_time thread_time_ns time time_ns timezone tzname
        tzset
        """
    ),
    "traceback": _words(
        """
        format_exc format_exception format_exception_only format_tb print_exc print_exception print_last print_tb
        """
    ),
    "typing": _words(
        """
        AbstractSet Annotated Any AnyStr AsyncContextManager AsyncGenerator AsyncIterable AsyncIterator Awaitable
        BinaryIO ByteString Callable ChainMap ClassVar Collection Concatenate Container ContextManager Coroutine
        Counter DefaultDict Deque Dict Final FrozenSet Generator Generic Hashable IO ItemsView Iterable Iterator
        KeysView List Literal LiteralString Mapping MappingView Match MutableMapping MutableSequence MutableSet
        NamedTuple Never NewType NoReturn NotRequired Optional OrderedDict ParamSpec ParamSpecArgs ParamSpecKwargs
        Pattern Protocol Required Reversible Self Sequence Set Sized SupportsAbs SupportsBytes SupportsComplex
        SupportsFloat SupportsIndex SupportsInt SupportsRound TYPE_CHECKING Text TextIO Tuple Type TypeAlias
        TypeGuard TypeVar TypeVarTuple TypedDict Union Unpack ValuesView assert_never assert_type cast
        clear_overloads dataclass_transform final get_args get_origin get_overloads is_typeddict no_type_check
        overload reveal_type runtime_checkable
        """
    ),
    "unicodedata": _words(
        """
        bidirectional category combining decimal decomposition digit east_asian_width is_normalized lookup mirrored
        name normalize numeric unidata_version
        """
    ),
    "urllib.parse": _words(
        """
        DefragResult DefragResultBytes ParseResult ParseResultBytes SplitResult SplitResultBytes parse_qs parse_qsl
        quote quote_from_bytes quote_plus unquote unquote_plus unquote_to_bytes urldefrag urlencode urljoin urlparse
        urlsplit urlunparse urlunsplit
        """
    ),
    "uuid": _words(
        """
        NAMESPACE_DNS NAMESPACE_OID NAMESPACE_URL NAMESPACE_X500 RESERVED_FUTURE RESERVED_MICROSOFT RESERVED_NCS
        RFC_4122 SafeUUID UUID uuid1 uuid3 uuid4 uuid5
        """
    ),
    "warnings": _words(
        """
        catch_warnings filterwarnings resetwarnings simplefilter warn
        """
    ),
    "zoneinfo": _words("InvalidTZPathWarning ZoneInfo ZoneInfoNotFoundError available_timezones"),
    # the agent's own world: the native SDK, and SN15's interface as the guest provides it
    "arena_sdk": _words("Reply ToolError llm tools"),
    "arena_sdk.llm": _words("Reply chat models"),
    "arena_sdk.tools": _words(
        """
        JsonObject call calculate_voucher check_product_match execute find_product find_products_in_same_shop
        recommend_product schemas terminate view_product_information
        """
    ),
    "src.agent.agent_interface": _words(
        """
        AgentOutput Tool ToolCallResult ToolResult _TOOL_REGISTRY create_dialogue_step execute_tool_call
        format_content generate_tool_call_id get_tool list_tools register_tool
        """
    ),
    "src.agent.proxy_client": _words("InferenceStats PostResult ProxyClient RequestLog"),
    # the guest's stand-ins for what SN15's image has: the host's own paths, or nothing (`arena_sdk.standin_requests`)
    "requests": _words(
        """
        ConnectTimeout ConnectionError HTTPError JSONDecodeError ReadTimeout RequestException Response Session Timeout
        get post request
        """
    ),
    "requests.adapters": _words("HTTPAdapter"),
    "requests.exceptions": _words(
        "ConnectTimeout ConnectionError HTTPError JSONDecodeError ReadTimeout RequestException Timeout"
    ),
    "urllib.error": _words("HTTPError URLError"),
    "urllib.request": _words("Request urlopen"),
    # modules that honest agents use in small part, and packages that only lead to their modules
    "ast": _words("literal_eval"),
    "inspect": _words("cleandoc getdoc signature"),
    "io": _words("StringIO"),
    "os": _words("environ getenv"),
    "os.path": _words("basename dirname exists join"),
    "sys": _words("exit maxsize platform stderr stdout version version_info"),
    "types": _words("MappingProxyType NoneType SimpleNamespace TracebackType UnionType"),
    "urllib": _words(""),
    "concurrent": _words(""),
    "src": _words(""),
    "src.agent": _words(""),
}
