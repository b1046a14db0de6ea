"""Facts to plant in a conversation: what was said, where, in which of many natural forms, and what to ask about it.

Invariant: everything follows from the seed; no value of a fact is another fact's or a distractor's; the form is chosen
without knowledge of whoever summarises, and no summariser may import this module (a test reads the imports). Any
function with the signature of `make` can stand in for it: `--facts module:function`.

Not for: the conversation around the facts (see `workloads.py`). One form for all ("NOTE: ...") was rejected: whoever
looks for that word finds every fact, which says nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

PLACES = ("tool", "user", "assistant", "call")


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One thing that may have to be known later."""

    # Type of the value, one of KINDS.
    kind: str
    # Shape in which it is planted.
    form: str
    # tool: lines of a tool's output; user, assistant: part of their text; call: arguments of a tool call.
    place: str
    # What is planted, as it stands in the conversation.
    text: str
    # What is known when the fact is known: the exact value.
    value: str
    # The shortest way to say it, for its size in tokens.
    short: str
    # One question whose answer is the value.
    question: str
    # Three other values of the same type, which the conversation does not hold.
    distractors: tuple[str, str, str]


# Type: the word for it, the same in Chinese, Japanese and German, and what has one.
KINDS: dict[str, tuple[str, str, str, str, tuple[str, ...]]] = {
    "port": ("port", "端口", "ポート", "Port", (
        "mail relay", "metrics sink", "billing proxy", "build cache", "auth shim",
    )),
    "version": ("version", "版本", "バージョン", "Stand", ("parser", "kernel image", "wheel", "schema", "mobile app")),
    "ticket": ("ticket", "工单", "チケット", "Vorgang", (
        "login bug", "quota request", "audit", "slow export", "typo fix",
    )),
    "commit": ("commit", "提交", "コミット", "Commit", (
        "rollback", "last good build", "hotfix", "release base", "bisect hit",
    )),
    "path": ("path", "路径", "パス", "Pfad", ("spool file", "license", "crash dump", "cert bundle", "seed list")),
    "host": ("host", "主机", "ホスト", "Rechner", ("staging", "replica", "print queue", "vault", "runner")),
    "limit": ("limit", "上限", "上限", "Grenze", ("upload", "retry wait", "lock wait", "export", "session idle")),
    "person": ("owner", "负责人", "担当者", "Besitzer", (
        "payments", "design docs", "on-call", "mirror", "invoice job",
    )),
}
_COLOURS = ("amber", "cobalt", "olive", "coral", "slate", "ivory", "teal", "umber", "lilac", "ochre")
_GIVEN = ("Ingrid", "Tomas", "Aiko", "Farid", "Lena", "Moses", "Priya", "Joao", "Katya", "Owen", "Noor", "Bela")
_FAMILY = ("Solheim", "Varga", "Mori", "Haddad", "Brandt", "Okoro", "Nair", "Prates", "Orlova", "Reyes", "Quist")
_FOLDERS = ("srv", "opt", "mnt", "etc", "data")
_FILES = ("queue", "north", "relay", "delta", "sable", "pivot", "basin", "lumen", "quartz", "fjord")
_ENDS = ("toml", "pem", "bin", "lst", "key", "dat")


def make(seed: int, count: int = 40) -> list[Fact]:
    """`count` facts, spread evenly over the eight types; at most 40, so that no subject has two values."""
    chance = random.Random(f"facts {seed}")
    used: set[str] = set()
    by_turn = [(kind, KINDS[kind][4][turn]) for turn in range(5) for kind in chance.sample(sorted(KINDS), len(KINDS))]
    if count > len(by_turn):
        raise ValueError(f"there are subjects for {len(by_turn)} facts, not for {count}")
    forms = [name for _ in range(count // len(FORMS) + 1) for name in chance.sample(sorted(FORMS), len(FORMS))]
    facts = []
    for (kind, subject), form in zip(by_turn[:count], forms, strict=False):
        value = _new(kind, chance, used)
        place, write = FORMS[form]
        word = KINDS[kind][0]
        facts.append(
            Fact(
                kind=kind, form=form, place=place, value=value, short=f"{subject} {word} {value}",
                text=write(subject, kind, value, chance), question=f"What is the {word} of the {subject}?",
                distractors=(_new(kind, chance, used), _new(kind, chance, used), _new(kind, chance, used)),
            )
        )
    return chance.sample(facts, len(facts))


def _new(kind: str, chance: random.Random, used: set[str]) -> str:
    while (value := _value(kind, chance)) in used:
        pass
    used.add(value)
    return value


def _value(kind: str, chance: random.Random) -> str:
    if kind == "port":
        return str(chance.randint(2000, 9999))
    if kind == "version":
        return f"{chance.randint(1, 9)}.{chance.randint(10, 39)}.{chance.randint(0, 9)}"
    if kind == "ticket":
        return f"{chance.choice(('OPS', 'WEB', 'FIN', 'QA'))}-{chance.randint(1000, 9999)}"
    if kind == "commit":
        return chance.choice("abcdef") + "".join(chance.choices("0123456789abcdef", k=6))
    if kind == "path":
        return f"/{chance.choice(_FOLDERS)}/{chance.choice(_FILES)}/{chance.choice(_FILES)}.{chance.choice(_ENDS)}"
    if kind == "host":
        return f"{chance.choice(('db', 'vm', 'node', 'box'))}-{chance.choice(_COLOURS)}-{chance.randint(1, 99)}"
    if kind == "limit":
        return f"{chance.randint(11, 989)} {chance.choice(('MB', 'ms', 's', 'rows'))}"
    return f"{chance.choice(_GIVEN)} {chance.choice(_FAMILY)}"


Writer = Callable[[str, str, str, random.Random], str]


def _slug(subject: str, by: str = "_") -> str:
    return subject.replace(" ", by).replace("-", by)


def _plain(pattern: str) -> Writer:
    """A form that is one pattern: {s} subject, {w} its word, {v} value, {u} {d} {U} subject with _ - or in capitals."""

    def write(subject: str, kind: str, value: str, _chance: random.Random) -> str:
        word, chinese, japanese, german, _ = KINDS[kind]
        slug = _slug(subject)
        return pattern.format(
            s=subject, w=word, v=value, u=slug, d=_slug(subject, "-"), U=f"{slug}_{word}".upper(), W=word.capitalize(),
            zh=chinese, ja=japanese, de=german,
        )

    return write


def _sentence(subject: str, kind: str, value: str, chance: random.Random) -> str:
    """How a person or a tool would put it, by type."""
    sentences = {
        "port": ("the {s} listens on {v} now", "we moved the {s} to {v}"),
        "version": ("the {s} is pinned to {v}", "only {v} of the {s} works"),
        "ticket": ("the {s} is tracked in {v}", "{v} is about the {s}"),
        "commit": ("the {s} is at {v}", "{v} became the {s}"),
        "path": ("the {s} sits in {v}", "we keep the {s} under {v}"),
        "host": ("the {s} runs on {v}", "{v} took over as {s}"),
        "limit": ("the {s} stops at {v}", "nothing over {v} for the {s}"),
        "person": ("ask {v} about the {s}", "{v} looks after the {s}"),
    }
    return chance.choice(sentences[kind]).format(s=subject, v=value)


def _said(before: str, after: str = ".") -> Writer:
    def write(subject: str, kind: str, value: str, chance: random.Random) -> str:
        sentence = _sentence(subject, kind, value, chance)
        # A sentence that begins with its value keeps it as it is.
        begins = sentence if before or sentence.startswith(value) else sentence[:1].upper() + sentence[1:]
        return f"{before}{begins}{after}"

    return write


def _changed(subject: str, kind: str, value: str, chance: random.Random) -> str:
    old = _value(kind, chance)
    name = f"{_slug(subject)}.{KINDS[kind][0]}"
    return f"-{name}: {old if old != value else 'unset'}\n+{name}: {value}"


def _clock(chance: random.Random) -> str:
    return f"{chance.randint(6, 22):02}:{chance.randint(0, 59):02}:{chance.randint(0, 59):02}"


def _logged(subject: str, kind: str, value: str, chance: random.Random) -> str:
    level = chance.choice(("WARN", "INFO", "NOTICE"))
    return f"{_clock(chance)} {level} {_slug(subject, '-')}: {KINDS[kind][0]}={value}"


def _nested(subject: str, kind: str, value: str, _chance: random.Random) -> str:
    return f'{{"{_slug(subject)}": {{"{KINDS[kind][0]}": "{value}"}}}}'


# Form: where it stands, and how it is written.
FORMS: dict[str, tuple[str, Writer]] = {
    "json": ("tool", _nested),
    "json line": ("tool", _plain('  "{u}_{w}": "{v}",')),
    "yaml": ("tool", _plain("{u}:\n  {w}: {v}")),
    "table": ("tool", _plain("| {s} | {w} | {v} |")),
    "log": ("tool", _logged),
    "comment": ("tool", _plain("# {s}: {w} {v}")),
    "environment": ("tool", _plain("{U}={v}")),
    "section": ("tool", _plain("[{s}]\n{w} = {v}")),
    "prose of a tool": ("tool", _said("")),
    "csv": ("tool", _plain("{s},{w},{v}")),
    "xml": ("tool", _plain('<{d} {w}="{v}"/>')),
    "trace": ("tool", _plain("RuntimeError: {s}: {w} {v} refused")),
    "diff": ("tool", _changed),
    "sql": ("tool", _plain("INSERT INTO conf VALUES ('{s}', '{w}', '{v}');")),
    "aside": ("user", _said("by the way, ")),
    "correction": ("user", _plain("no, the {s} {w} is {v}.")),
    "quoted": ("user", _plain('They wrote: "{s} {w} {v}".')),
    "chinese": ("user", _plain("{s} 的{zh}是 {v}。")),
    "german": ("user", _plain("{de} von {s} ist {v}.")),
    "note": ("assistant", _said("Noted: ")),
    "finding": ("assistant", _said("It turns out that ")),
    "bullet": ("assistant", _plain("- {s}: {w} **{v}**")),
    "japanese": ("assistant", _plain("{s} の{ja}は {v} です。")),
    "argument": ("call", _plain("{u}.{w}={v}")),
}
