"""The words and forms by which the headings, names and figures of published tables are recognised."""

from __future__ import annotations

import re


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


UNITS = {
    **dict.fromkeys(("ns", "nanoseconds"), 1e-9),
    **dict.fromkeys(("us", "µs", "μs", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "msec", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("day", "days"), 86400.0),
}
_UNIT = "|".join(sorted(UNITS, key=len, reverse=True))
EMPTY = re.compile(r"[(\[]\W*[)\]]")
_NUMBER = r"[-+]?(?:[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d{0,2}(?:[ \u00a0\u2009\u202f]\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?"
VALUE = re.compile(
    rf"(?:~|≈|\$)?\s*(?P<value>{_NUMBER})\s*(?P<unit>%|[x×]|{_UNIT})?"
    rf"(?:\s*(?:±|\+/-)\s*(?P<spread>{_NUMBER})|\s*(?:\[|\(95 ?% CI:?)\s*(?P<low>{_NUMBER})\s*(?:,|–|-|to)\s*"
    rf"(?P<high>{_NUMBER})\s*[\])])?\s*(?P<after>%|[x×]|{_UNIT})?",
)
ASIDE = _words(
    rf"\s*\(\s*[-+−]?\s*{_NUMBER}\s*(?:%|[x×])(?: (?:faster|slower|speed-?up))?\s*\)$|"
    rf":\s*{_NUMBER}\s?[x×] (?:faster|slower)$"
)
"""What is said beside a figure about another row: ``3.2 s (1.4x)``, ``31 min (-30 %)``, ``221 ms: 1.03x faster``."""
BEGINS_TIMED = re.compile(rf"\W*\d[\d.,]*\s*(?:(?:±|\+/-)\s*[\d.,]+\s*)?(?:{_UNIT})\b")
SHORT = re.compile(r"\d\s*(?:ns|us|µs|μs|ms|msec|s|secs?|seconds?)\b")
OF_SPEED = _words(
    r"\bbench|perform|speed|\bfast|\bslow|\btim(?:e|ing)|latency|runtime|train|\bresults?\b|\bratio\b|\bbefore\b"
)
METHOD = r"\b(?:ours|baseline|old|new|main|pr|before|after)\b"
IMPROVED = _words(r"optimi[sz]ed|\btuned|compiled|\bours\b|\bfast|speed-?up")
OF_METHODS = _words(rf"{METHOD}|improvement|bench|perform|speed|runtime|latency|compress")
"""Headings of a table that compares programs, and not of one that lists lengths."""
OF_PROGRAMS = _words(
    r"\b(?:library|framework|engine|compiler|backend|database|implementation|query|solver|model|method|rows|size|"
    r"function|operation|algorithm)\b|^n$"
)
"""The heading of the names of programs or of their work, whose figures may be minutes; longer ones may be plans."""
PROPER = re.compile(r"[a-z][A-Z]|[A-Z]{2}|\w\d|\d\.\d|^[a-z]")
"""A name that is spelt as no word of a sentence is, such as ``polars`` or ``Python 3.11``."""
OF_PHASE = _words(r"(?:ing|tion|ence)\b|\b(?:first|next|setup|kernel|host|transfer|queue|network|client|server)\b")
"""The name of a part of a program, as of an action: parts follow one another."""
PROCESSOR = _words(r"(?:[ctgn]pu|cuda|mps|fpga)s?")
"""Where a program ran, as the heading of a column: ``CPU latency`` beside ``GPU latency``, but not ``CPU time``."""
LIMIT = _words(r"\b(?:lower|upper) (?:bound|limit|end|ci)\b")
"""The heading of a column that bounds a figure of its row, and is no system."""
SIZE = _words(
    r"(?:(?:batch|input|image|hidden|seq(?:uence)?|context)[- ]?)?(?:batch|size|length|len)|resolution|concurrency|"
    r"(?:# ?|num )?(?:threads|gpus|nodes|workers|cores|ranks|processes|clients|users|rows)"
)
"""The heading of a size that tells rows of one name apart, and is no number of a repetition."""
EMOJI = re.compile("[\u2020\u2021\u2705\u2728\u26a1\u2b50\ufe0f\U0001f300-\U0001faff]")
CLOCK = re.compile(r"(?P<h>\d{1,4}):(?P<min>[0-5]\d):(?P<s>[0-5]\d(?:\.\d+)?)")
OF_DAY = _words(
    r"(?<!-)(?<!to )\b(?:start|end|finish|begin|submit|submission|creation|arrival|departure|release)(?:ed|ing)?"
    r"(?: ?time| at)?$"
)
"""Headings of a time of day."""
PARTS = re.compile(rf"(?:\d{{1,9}}(?:\.\d+)?\s*(?:{_UNIT}|m)\s*){{2,}}")
PART = re.compile(rf"(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>{_UNIT}|m)(?![a-z])")
"""A time of several units: ``1 h 23 min``, ``3m 20s``; ``0:10:28`` is of hours, minutes and seconds."""
_OF_EACH = rf"(?P<first>{_UNIT})\s?(?:/|per )\s?(?!(?:{_UNIT}|max|week|month|year|user)\b)[a-z]{{2,}}"
"""A heading such as ``ms/step``."""
IN_HEADING = _words(
    rf"[(\[]\s*(?P<unit>{_UNIT}|%|\$|usd)\.?\s*(?:per \w+|/\s*\w+)?\s*(?:[)\]]|(?<!min),(?! ?(?:{_UNIT})\b))|"
    rf"[,/_]\s*(?P<last>{_UNIT}|%|\$|usd)\s*(?:$|[(\[])|"
    rf"\b(?:in|train(?:ing)?|wall[- ]?clock) (?P<named>{_UNIT})\s*$|^{_OF_EACH}\b|"
    r"(?<!\d)(?<!\d )(?P<sign>%|\bpercentage\b)"
)
"""A unit in brackets, or at the end (``time, s``, ``time_s``); a percent sign anywhere, except that of a number."""
_SET = (
    r"\bdeadlines?\b|\bconstraints?\b|\bsl[oa]s?\b|\ballow(?:ed|able|ance)\b|\b(?:permitted|permissible|acceptable)\b|"
    r"\btolerances?\b|\brequirements?\b|\brequired (?!for\b|to\b|by\b)[a-z]|\blimits?\b|\bbudget(?:ed|s)?\b|"
    r"\b(?:throughput|rate|speed|latency|accuracy|quality|fps|qps|/s) required\b|\bprojected\b|\bextrapolat|"
    r"(?<!to )(?<!to the )\b(?:targets?|goals?)\b|(?<!to )(?<!to the )(?<!at )(?<!at the )(?<!best )(?<!@)"
    r"\bthresholds?\b(?! ?(?:=|of\b|\d))|\bplanned\b|\brequested\b|\ballotted\b|\bcaps?\b(?! ?\d)|\bceiling\b|"
    r"\broofline\b|(?<!-)(?<!cpu )(?<!gpu )(?<!memory )(?<!compute )(?<!i/o )(?<!io )\bbounds?\b|\bbest possible\b|"
    r"\bideal\b|\beta\b|\brated\b|\badvertised\b|\bdata[- ]?sheet\b|"
    r"\bspec(?:ified|[- ]?sheet)\b"
)
"""Words of limits, goals, plans and promises, which nobody has measured."""
_DEVIATION = (
    r"\bjitter\b|uncertaint|variance|σ|\bst(?:an)?d?(?:ard)?\.? ?(?:err|dev)|\bstd\b|deviation|"
    r"\b(?:se|sem|sd|mad|iqr)\b ?(?:[(\[,)]|$)"
)
RATES = _words(
    r"^(?!.*time ?/ ?s$|latency ?/ ?s$).*(?:/\s*s\b|per second|throughput|fps|it/s|samples/|images/|tokens/)"
)
"""Headings of rates; ``runtime / s`` is a time with its unit."""
TIMES = _words(
    r"\b(?:time|latency|duration|elapsed|(?<!onnx )(?<!lite )runtime|wall(?:[- ]?clock)?|seconds|minutes|hours|ms)\b|"
    rf"\b(?:\w*zeit|dauer|temps|durée|tiempo|duración)\b|^(?:mean|median|average|min|max)\s*[(\[]|"
    rf"^(?:mean|median|average) (?:{_UNIT})$|^{_OF_EACH}\b"
)
OTHER_TIMES = _words(
    r"time[- ]?out(?!p)|\bsav(?:ed|ings?)\b|reduc(?:ed|tion)|overhead|differ|delta|Δ|predicted|"
    r"\bestimat(?:ed?|es|ion(?! (?:time|latency)))\b|"
    r"expected|theor|ideal|\bnominal\b|\bclaimed\b|\bclaims?\s*(?:[(\[,]|$)|"
    rf"{LIMIT.pattern}|\berror\b(?! rate)|^±|\bci\b(?! time)|confidence|\bmargin\b|"
    r"\bdefault (?:time|duration)|\bmin ?/ ?max\b|latency.*\(min\)|\bsimulated\b(?! ann)|"
    r"(?:shortest|longest|sampling|polling|update) interval|\bperiod\b|\bdelay\b|\bwindow\b|resolution|granularity|"
    r"(?<!per )(?<!/)(?<!/ )\btime[- ]?steps? ?(?:[(\[,]|size|$)|\btime constant|\bthink(?:ing)? time|"
    r"\b(?:time|hours|days) since\b|\b(?:to|between) failures?\b|\btime to live\b|\bttl\b|"
    r"\b(?:ttft|tpot|itl)\b|"
    r"\bback-?off\b|\bsleep\b|\bcut-?off\b|\bup-?time\b|\btime left\b|\bremaining\b|\blead[- ]time\b|^warm-?up\b|"
    r"\b(?:data ?sets?|test|frame|chunk)[- ](?:duration|length)\b|\bhop\b|\bstride\b|look-?ahead|"
    r"\bduration of (?:the |an? )?(?:\w+ )?test\b|^(?!time (?:to|for|per) ).*(?:\b(?:hours|minutes|seconds) of\b|"
    r"\bof (?:the )?(?:inputs?|audio|speech|recordings?|clips?|videos?)\s*(?:[(\[,]|$))|"
    r"\b(?:audio|video|speech|clip|song|track|recording|episode)s?[- ](?:time|duration|length)\b|"
    r"\b(?:gpu|cpu|tpu|core|node|device|accelerator)s?[- ]?(?:time|hours?|minutes?|seconds?|h)\b|"
    rf"{_SET}|{_DEVIATION}"
)
"""Headings of times that are none from start to end: how much is saved, a spread, a limit, a sum over processors."""
OF_INPUT = _words(
    r"\b(?:after|before|until|between) (?:an?|the|each|every|two)\b|"
    r"\b(?:audio|video|speech|data(?: ?sets?)?$|corpus|clips?$|songs?|tracks?|segments?|recordings?|inputs?|length|"
    r"ages?|dates?|last|updated?|retention|lifetime|ttl|warm-?up|ramp|pause|lag|interval)\b"
)
"""Headings of how long an input or an interval is, or how old something."""
KEPT = _words(r"\b(?:retention|lifetime|ages?|interval)\b")
"""Headings of how long something is kept."""
TIMED = _words(
    r"\b(?:latency|mean|median|average|avg|best|worst|fastest|slowest|p\d+|elapsed|wall|real|user|total|overall|cold|warm|"
    r"before|after|ours|baseline|old|new|main|cpu|gpu|end-to-end|step|epoch|iter\w*|query|request|response|run|result|"
    r"value|measure\w*|record|speed|perf\w*|bench\w*|"
    r"(?:train|infer|forward|backward|compil|build|start|load|pars|encod|decod|prefill|generat|synth|search|sort|solv|"
    r"render|simulat|transcri|convert|comput|execut|process|scan|index|fit|predict|import|serial|deserial|read|writ|"
    r"cop[iy]|download|upload)\w*(?<![^s]s))\b"
)
"""Headings of what a program did or of how its runs are summed up, without a word of time."""
QUANTILE = _words(r"\bp\d+\b|percentile|\d+th\b")
END = _words(r"\b(?:min|max|minimum|maximum|best|worst|fastest|slowest|p\d+|\d+th|user|system)\b|percentile")
"""Headings of times that stand beside a mean or median, and are not meant instead of it."""
NO_INTERVAL = _words(r"\bmin\b.*\bmax\b|\brange\b|\biqr\b|quartile|percentile|\bstd\b|\bsd\b|deviation")
_COUNTED = (
    r"(?:im(?:g|age)?|tok(?:en)?|sample|step|req(?:uest)?|seq(?:uence)?|it(?:eration)?|op(?:eration)?|sentence|row|record|"
    r"event|frame|call|message|msg|transaction|word|document|inference|prediction|querie)s?|query"
)
RATE_OF = _words(
    rf"(?<![A-Za-z-])(?:(?:(?P<kilo>(?-i:[kKMG]))? ?(?:throughput|(?P<bytes>(?-i:B)|bytes)|t(?=/s)|{_COUNTED})|"
    r"(?<!(?-i:[kKMGT]) )(?!\w*(?:flop|tops|bit)|joules|met(?:er|re)s|hours|minutes)[a-z]{2,}s(?= ?/))\W*"
    r"(?:/ ?|per )(?:s|sec|second)\b(?! ?/| per\b| of\b)|(?P<thousand>(?-i:[kKM]))?(?:fps|qps|tps|rps)\b)"
)
"""Headings of rates of anything in the plural: ``images/s``, ``throughput (k tokens/sec)``, ``FPS``; ``1.2 GB/s``."""
SAYS_RATE = _words(r"throughput|\bspeed\b|\brates?\b|performance")
SAYS_FIGURE = _words(r"(?:score|result|value)s?")
OF_MACHINE = _words(
    r"bandwidth|memory|\b(?:disk|network|link|bus|quota|limit|load)\b|"
    r"\b(?:request|arrival|offered|input|sampl(?:e|ing)|frame|refresh) ?rate\b|\b(?:sent|offered|demand)\b|"
    r"\b(?:input|source|camera|sensor|display|video|playback|recording) fps\b"
)
"""Headings of rates that a machine could reach, or that were asked of a program, and no speed of one."""
IN_THOUSANDS = _words(r"\s*[(\[](?:in )?(?P<kilo>thousand|million)s?[)\]]$")
"""What multiplies the rate that a heading ends with."""
FACTOR = _words(
    r"(?<!\d)(?<!\d )(?<!one )(?<!per )(?<!/)\b(?:hundred|thousand|million|billion|mln|mio)s?\b|"
    r"\b(?:thousand|million|billion)s? (?:of )?\w+ ?(?:/|per )|\b(?:kilo|mega|giga)(?:\b|-)|"
    r"['’]000s?\b|(?<!\d)(?<!\d )[x×*] ?1[0,]*0\b|\b1(?:[ ,]?000)+s\b|"
    r"(?:^|[(\[,]|\bin) ?1(?:[ ,]?0{2,3})+ ?(?:[)\]]|$|[a-z]+ ?(?:/ ?|per )s)|\b1e\+?\d\b"
)
LETTER = re.compile(r"(?<![\w.@'’-])(?<!\d )[kKMG](?![\w.'’-]| ?[=:])")
"""A factor in a heading, in words or digits anywhere and as a letter apart from the unit: ``tok/s (k)``."""
PART_OF_RATE = _words(
    r"\bper\b(?![- ]?(?:s|sec|seconds?)\b)|\b(?:each|every)\b|"
    r"[/·*⋅] ?(?:[cgt]pu|chip|device|core|accelerator|node|card|worker|thread|rank|socket|machine|user|client|watt)\b"
)
"""Headings of a rate of a part of the side: ``images/s (per GPU)``, ``throughput/chip``, ``tokens/s (each)``."""
RECORDED = _words(r"\b(?:(?P<data>data ?set|corpus|split)|video|clip|recording|camera|sensor|stream)s?\b")
LENGTH = _words(rf"(?:total )?(?:hours|minutes|seconds|duration|length)(?:\s*[(\[]\s*(?:{_UNIT})\s*[)\]])?")
OF_SPEECH = _words(r"\b(?:wer|cer|speakers?|utterances?)\b")
RATE = re.compile(
    rf"(?:~|≈)?\s*(?P<value>{_NUMBER})\s?(?P<kilo>[kKMG])?(?:\s*(?:±|\+/-)\s*{_NUMBER}\s?[kKMG%]?)?(?:\s*(?P<unit>[A-Za-z].*))?"
)
KILO = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
PER = _words(r"/|\bper\b|\bhourly\b")
PRICE = _words(
    r"^(?!.*\b(?:train|run|job|total)).*\b(?:price|msrp|budget)\b|"
    r"\b(?:sav(?:ed|ings?)|monthly|annual|yearly|hardware|machine|device|card|inference|serving|query|token|request|prize)|"
    r"\b(?:gpu|list|max(?:imum)?) cost\b"
)
"""What something may be bought for or save, and no run to a target has cost."""
_EACH, _STEP = r"(?:\b(?:per|an?|each|one) |/ ?)(?:training )?", r"(?:step|iteration|iter)\b"
TIME_OF = (
    ("epoch", _words(rf"{_EACH}epoch\b|\bepoch (?:time|duration)|^epoch\b")),
    ("step", _words(rf"{_EACH}{_STEP}|\b{_STEP} (?:time|duration|latency)|^{_STEP}")),
    ("call", _words(r"latency|inference|\bcall\b")),
    ("target", _words(r"\bto\b.*(?:\d ?%|accuracy|target|loss|quality)")),
)
TARGET = _words(r"\bto (?P<percent>\d{1,2}(?:\.\d{1,4})?) ?%")
QUALITY = _words(
    r"percentage correct|\b(?:acc(?:uracy)?|top[- ]?[15]|f1|bleu|rouge|map|m?iou|auc|auroc|perplexity|ppl|"
    r"wer|cer|r?mse|mae|error rate|(?:test|val(?:idation)?) err(?:or)?|loss|dice|psnr|ssim|fid|bpc|bits per byte|"
    r"(?-i:AP(?:50|75)?|EM|R2)|exact match|(?:pass|recall|r|ndcg)@\d+|mrr)\b|\bR²|^error ?[(\[] ?%"
)
LONGEST = 60
"""Characters of the name of a quality; a longer one is a sentence that mentions it."""
OTHER_QUALITIES = _words(
    r"Δ|delta|differ|\bdrop|degrad|improve|\bgain|\b(?:in|de)crease|\brelative|\bratio\b|"
    r"\bgap\b|\bvs\b|versus|compared|\bchange|reduc|retain|retention|recover|#|\bnumber of\b|\bcounts?\b|"
    r"\bevaluations?\b|\b(?:acc|accuracy|f1|bleu|map|top[- ]?[15])[- ]loss\b|\bloss of\b|\blost\b|"
    r"\b(?:epochs|steps|iterations) to\b|\btarget\b|^% of\b|\bpackets?\b|"
    r"\b(?:expected|predicted|estimated)\b|\b(?:loss|accuracy|f1) weight\b|\brequired\b|"
    r"\bloss[- ](?:scal|func|type\b|coef)|\branks?\b(?![- ]?\d)|\b(?:accuracy|quality|error) (?:range|margin)\b|"
    r"^(?:min|max)(?:imum)? (?:\w+ )?(?:acc|accuracy|top|f1|bleu|map|auc|error|loss|perplexity|wer)\b|"
    rf"{_SET}|{_DEVIATION}"
)
"""Headings of what is not the quality itself: a difference, a share of another one, a spread, a limit, a count."""
SCALED = _words(
    r"[×x*] ?10\b|10\^|10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]|[×*] ?\d{3}|\blog\b(?![ -]loss)|normali[sz]ed|\brelative (?:time|latency)"
)
"""Headings of figures that are not in the unit that is given."""
TRAINED = _words(r"\btrain(?:ing)?\b")
OF_ANOTHER = _words(r"\b(?:baseline|teacher|reference|original|paper|reported|published|before)\b(?! data)")
"""Headings of a quality that another system had, or this one elsewhere, where a second column has the row's own."""
COST = _words(r"\b(?:cost|price)\b|\$|\busd\b")
SETTINGS = _words(
    r"\W*(?:command[- ]line |environment |config(?:uration)? |hyper-?)?"
    r"(?:options?|param(?:eter)?s?|arg(?:ument)?s?|flags?|settings?|variables?|keys?|columns?|fields?|properties|property)\W*"
)
CURVE = _words(r"\W*(?:epoch|step|iteration|phase|stage)\W*")
"""The heading of the names in a table of settings, whose times nobody has measured, or in a curve of one system."""
KINDS = _words(r"(?:u?int(?:eger)?|float|double|number|str(?:ing)?|bool(?:ean)?|duration|seconds|enum|list|path|any)s?")
"""What a setting may be, below ``Type``."""
UNIT_COLUMN = _words(r"units?")
OF_TIME = _words(r"(?:\d+ )?(?:second|minute|hour|day|week|month|year)s?")
"""The name of a unit of time, whose length nobody has measured."""
LIMITED = _words(r"\b(?:limits|quotas)\W*$")
"""What a table of limits is called, all of whose figures are limits."""
TIMETABLE = _words(
    r"(?:sessions?|lessons?|lectures?|chapters?|talks?|courses?|agenda|severit(?:y|ies)|priorit(?:y|ies))"
)
"""The heading of what takes a time that somebody planned or promised."""
FORMATS = _words(r"(?:video )?(?:resolution|bit ?rate|codec)s?")
FORMAT_RATES = frozenset(("24", "25", "30", "50", "60", "90", "120", "240"))
"""The heading beside the frames per second of a recording, and the usual ones of these."""
OFFERS, OFFERED = (
    _words(r"(?:\w+ )?(?:plans?|tiers?|packages?|subscriptions?|editions?)"),
    _words(r"price|cost|\$|up-?time"),
)
"""The heading of the names of what somebody sells, and of what is said of these."""
ALLOWED = _words(
    r"time-?outs?\b|\b(?:quotas?|delays?|period|retention|uptime)\b|\b(?:ramp|warm)[- ]?(?:up|down)$|"
    rf"\b(?:test|clip|audio|video|recording|frame|chunk|window) (?:length|duration)\b|{_SET}"
)
"""The name of a row of times that are set, not measured."""
AVERAGED = _words(r"(?:average|avg\.?|mean|median|(?:geo|geometric) ?mean)\W*")
SUMMED = _words(
    rf"(?:total|sum|overall|n|st(?:an)?d(?:ard)?\.? ?(?:dev(?:iation)?|err(?:or)?)?|variance)\W*|{AVERAGED.pattern}"
)
"""The name of a row that sums up others."""
DEFAULT = _words(r"defaults?(?: values?)?")
RATIO = _words(r"(?<!linear )speed[- ]?up|\bfaster\b|^(?:relative )?speed$")
RUNS = _words(r"^(?:(?-i:n)|(?:# |n |num |number of |no\. of )?(?:runs|seeds|repeats|repetitions))$")
INTERVAL = _words(
    rf"(?:9\d(?:\.\d+)? ?% ?)?(?:ci|confidence intervals?|interval)(?: ?9\d ?%)?(?:\s*[(\[]\s*(?:{_UNIT}|%)\s*[)\]])?"
)
BOUNDS = re.compile(rf"[(\[]?\s*(?P<low>{_NUMBER})\s*(?:,|–|-|to)\s*(?P<high>{_NUMBER})\s*[)\]]?\s*(?:{_UNIT}|%)?")
"""The heading of a column of intervals, and a cell of it."""
SPREAD = re.compile(r"±|\+/-|\[\s*\d")
"""What stands beside a figure of several runs; without it, ``n`` may be the size of a problem."""
OF_RUNS = _words(
    r"\b(?:of|over) (?P<of>[1-9]\d{0,5}) (?:runs|seeds|repeats|repetitions)\b|\bn ?= ?(?P<n>[1-9]\d{0,5})\b"
)
HARDWARE = _words(
    r"^(?!.*\b(?:memory|ram|vram|cost|price|power|util|usage|hours?|burden)).*"
    r"\b(?:hardware|machine|system|device|gpus?|accelerator|instance)\b"
)
NAMES = {
    "hardware.description": HARDWARE,
    "framework": _words(r"\bframework\b"),
    "data.name": _words(r"^(?:data ?set|data|task)$"),
}
"""The fields that are names, and the headings of these."""
AMOUNT = re.compile(r"[~≈]?\s*[\d.,]+ ?(?:[kKMGT]i?B?|B|k?W|[GM]?Hz|%)")
OF_MODEL = _words(r"model|\bname\b|network|method|config")
IDENTIFIER, NAMED = (
    _words(r"(?:run |experiment )?(?:id|uuid)"),
    _words(r"(?:run |model |tags\.mlflow\.run)?name|model"),
)
NOTHING = _words(
    r"\W*(?:(?:n/?a|none|unknown|same(?: as above)?|ditto|idem|tb[ad]|various|yes|no|"
    r"[\d.,]+ ?(?:[kMGT]i?B|k?W|[GM]Hz))\W*)?"
)
"""What a cell of words says that names nothing, or an amount."""
REPORTED = tuple(
    (_words(rf"(?<!to )(?<!to the )\b{words}\b"), reported)
    for words, reported in (("median", "median"), ("(?:mean|average)", "mean"), ("(?:best|fastest)", "best"))
)


NO_FIGURES = (OTHER_TIMES, QUALITY, RATIO, COST, RECORDED, OF_INPUT)
NO_SYSTEM = _words(
    "|".join(rf"(?:{each.pattern})" for each in (TIMES, END, SAYS_RATE))
    + r"|\b(?:mean|median|average|avg|peak|jitter|total|sum|tokens?|ttft|tpot|itl|tottime|cumtime)\b"
)
"""What a heading says that is no time or rate of one of several systems, and what is no name of one."""
OF_HEADING = ("quality.metric", "quality.target", "time_of", "reported")
"""Fields that a heading states, and not the cell below it."""

OF_COMPUTING = _words(
    r"bench|latency|\binference|\b[cgtn]pus?\b|\bcuda\b|\bepochs?\b|\bbatch|\bdata ?(?:sets?|frames?|base)\b|neural|"
    r"\bframeworks?\b|\bcompil|\blibrar(?:y|ies)\b|\boptimi[sz]|\bp(?:ython|ypi)\b|torch|tensorflow|"
    r"\bjax\b|numpy|pandas|polars|\bkeras\b|\bonnx|\brust\b|\bjulia\b|java|node\.?js|c\+\+|\balgorithms?\b|\bsolvers?\b|"
    r"sql|\bquer(?:y|ies)\b|\bapis?\b|\bkernels?\b|\bthreads?\b|\bclusters?\b|"
    r"\b(?:f1|bleu|rouge|m?iou|map|auroc|auc|wer|perplexity|ppl|bpc|bits per byte|top[- ]?[15]|r?mse|mae|fid|psnr|ssim|"
    r"mrr|(?-i:EM|R2|AP)|\w+@\d+|baselines?|seeds?|hyper-?param)|R²|"
    r"\bours\b|wall[- ]?clock|\bcifar|imagenet|mnist|\bwmt|\bcoco\b|\bsquad\b|\bres-?net|\bbert\b|\bgpt|llama|"
    r"throughput|\bllms?\b|\btransformers?\b|\btoken|fine-?tun|\bcommit\b|\bcach(?:e|ed|ing)\b|\bsoftware\b|\bpars(?:er|ers|ing)\b|\bregex|"
    r"\bimplementations?\b|\bback-?ends?\b|\bmethods?\b|\bsystems?\b|\bmod[eè]l(?:s|l|le|o|os)?\b|\bnetworks?\b|"
    r"\b(?:gcc|clang|llvm|linux|docker|git|redis|npm|pip|uv|json|csv|http|webpack)\b|±|95 ?% ?ci\b|\bgithub|"
    r"\b(?:[avhtp]\d{2,3}|rtx|xeon|epyc|ryzen)\b|"
    r"\bnlp\b|\bml\b|\bdeep learning|\bmachine learning|\bclassif|\bsegmentation\b|\bhardware\b"
)
"""Words of programs and of the data that these work on, of which one stands near a table of what they took."""
OF_COMPUTING_HERE = _words(
    r"\b(?:tools?|engines?|runtimes?|training|trained|tests?|runs?|tasks?|speed|speed-?up|faster|performance|results?|"
    r"steps?|iterations?|workloads?|size|functions?|operations?|calls?|build|import|version|configuration|accuracy|loss|"
    r"before|after|main|encode\w*|decode\w*)\b"
)
"""Words that say so on a page that is of programs elsewhere."""
SHORTER = _words(
    r"\d ?(?:ns|us|µs|μs|ms)\b|[(\[,/_ ](?:ns|us|µs|μs|ms|milliseconds|microseconds|nanoseconds)(?:\b|_)|"
    rf"\b(?:{_COUNTED}) ?(?:/ ?|per )s(?:ec(?:ond)?)?\b"
)
"""Times and rates of programs alone."""
