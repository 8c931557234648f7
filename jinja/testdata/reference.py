#!/usr/bin/python3
"""Renders templates as Hugging Face's apply_chat_template does, with Jinja2 3.1.

Reads lines of JSON {"template": ..., "vars": {...}} and answers each with a line {"text": ...} or {"error": ...}.
"""
import json
import re
import resource
import signal
import sys
from datetime import datetime

import jinja2
import jinja2.ext
import jinja2.filters
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what the assistant wrote; its text is rendered as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


# Before 3.12 Python's sorted takes only an integer for reverse; since then anything that is true or false.
jinja2.filters.sorted = lambda items, key=None, reverse=False: sorted(items, key=key, reverse=bool(reverse))


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: datetime(2024, 7, 5, 9, 8, 7, 654321).strftime(format)
    return env


ENV = environment()


class TooLong(BaseException):
    pass


def too_long(*_):
    raise TooLong


def render(template, variables):
    """Returns {"text": ...} or {"error": the exception's class and message}."""
    signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, 2)
    try:
        text = ENV.from_string(template).render(**variables)
        text.encode()
        # Addresses differ from run to run.
        return {"text": re.sub(r"(?i) at 0x[0-9a-f]+(>|&gt;)", lambda m: m[0][:6] + "0" + m[1], text)}
    except (Exception, TooLong, MemoryError) as e:
        return {"error": f"{type(e).__name__}: {e}"[:200].encode(errors="replace").decode()}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    print(json.dumps({"jinja2": jinja2.__version__}), flush=True)
    for line in sys.stdin:
        case = json.loads(line)
        try:
            answer = render(case["template"], case.get("vars") or {})
        except TooLong:
            answer = {"error": "TooLong"}
        print(json.dumps(answer), flush=True)
