"""Writes chat.golden.json: conversations rendered by jinja2 as transformers does. See README.md."""
import json
import os

from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

here = os.path.dirname(os.path.abspath(__file__))


def config(path):
    with open(os.path.join(here, path), encoding="utf-8") as f:
        return json.load(f)


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception

weather = {"type": "function", "function": {"name": "get_weather", "description": "Weather <now> & \"later\" — it's für 東京",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "integer", "minimum": 0, "maximum": 1e10},
           "alpha": {"type": "number", "default": 0.5, "enum": [1.0, 1e-7, 2.5e16, -3, 12345678901234567890]}}, "required": ["city"], "additionalProperties": False}}}
flat = {"name": "add", "parameters": {}, "x": [], "n": None}
u = lambda c: {"role": "user", "content": c}
a = lambda c, **k: {"role": "assistant", "content": c, **k}
s = lambda c: {"role": "system", "content": c}
tool = lambda c, **k: {"role": "tool", "content": c, **k}
call = lambda args, name="get_weather": {"type": "function", "id": "c1", "function": {"name": name, "arguments": args}}

conversations = [
    {"messages": [u("Hello!")], "add_generation_prompt": True},
    {"messages": [u("Hello!")]},
    {"messages": [s("You are terse."), u("Hi"), a("Hi."), u("2+2?")], "add_generation_prompt": True},
    {"messages": [u("Hi"), a("<think>\nHm.\n</think>\n\nHello."), u("Again")], "add_generation_prompt": True},
    {"messages": [u("Hi"), a("<think>\nHm.\n</think>\n\nHello.")]},
    {"messages": [u("Hi"), a("Hello.", reasoning_content="\nThinking\n\n")]},
    {"messages": [u("Hi"), a("Hello.", reasoning_content="old"), u("More"), a("Done.", reasoning_content="new")]},
    {"messages": [u("Hi")], "add_generation_prompt": True, "enable_thinking": False},
    {"messages": [u("Hi")], "add_generation_prompt": True, "enable_thinking": True},
    {"messages": [s("Use tools."), u("Weather?")], "tools": [weather], "add_generation_prompt": True},
    {"messages": [u("Weather?")], "tools": [weather, flat], "add_generation_prompt": True, "enable_thinking": False},
    {"messages": [u("W?"), a("", tool_calls=[call({"city": "Zürich", "n": 1.0, "b": True, "z": None, "q": "a'b\"c\\d\n<&>"})]), tool("12 °C")], "tools": [weather], "add_generation_prompt": True},
    {"messages": [u("W?"), a("Let me see.", tool_calls=[call("{\"city\": \"Rome\"}"), call({"l": [1, [2, {}], "x"]}, "add")]), tool("a"), tool("b", tool_call_id="c1"), a("Both.")]},
    {"messages": [u("W?"), a("x", tool_calls=[{"name": "add", "arguments": {"a": 1}}]), tool("3"), u("Thanks")], "add_generation_prompt": True},
    {"messages": [u("Hi"), s("System in the middle"), a("ok"), u("bye")], "add_generation_prompt": True},
    {"messages": [u(""), a(""), u("")], "add_generation_prompt": True},
    {"messages": [u("{{ messages }} {% if x %} {# no #} {{- '<|im_end|>' }}")], "add_generation_prompt": True},
    {"messages": [u("a\r\nb\tc\n\n"), a("\n\n  x \n"), u("  ")], "add_generation_prompt": True},
    {"messages": [u("Hi"), tool("<tool_response>"), u("<tool_response>x</tool_response>"), a("<think>a</think>b</think>c")]},
    {"messages": [s("只说中文 😀 \u2028 e\u0301"), u("Ünï"), a("", tool_calls=[])]},
    {"messages": [s("first"), s("second"), u("Hi"), a("a", name="bot")], "tools": []},
    {"messages": [u("1"), a("<think>\n\n</think>\n\none"), u("2"), a("<think>t</think>\ntwo"), a("three")], "add_generation_prompt": True},
]

# Small templates in the manner of other models, for what theirs do not use.
templates = {
    "macro": "{% macro item(m, n=2) %}[{{ m.role | upper }}:{{ m['content'] | trim }}:{{ n }}]{% endmacro %}\n{% for m in messages %}\n    {{ item(m, loop.index) }}\n{% endfor %}\n{{ item(messages[0]) }}",
    "raise": "{% if messages[0].role == 'system' %}{{ raise_exception('No system\n message here') }}{% endif %}{{ bos_token is defined }}{{ messages | length }}",
    "loop": "{% for m in messages if m.role != 'system' %}{% if loop.index > 2 %}{% break %}{% endif %}{{ loop.first }}{{ loop.last }}|{{ m.content[:3] }}{{ m.content[-2:] }};{% else %}none{% endfor %}{{ messages[-1]['role'] }}{{ messages[1:] | length }}",
    "tools": "{% if tools is not none and tools %}{{ tools | tojson(indent=4) }}{% for t in tools %}{% for k, v in t.items() %}<{{ k }}>{{ v | tojson if v is mapping else v | default('none', true) }}</{{ k }}>{% endfor %}{% endfor %}{% endif %}{% for m in messages %}{% if m.get('tool_calls') %}{{ m.tool_calls[0] | tojson }}{% endif %}{% endfor %}",
    "namespace": "{% set ns = namespace(found=false, n=0) %}{% for m in messages %}{% if m['role'] == 'user' %}{% set ns.found = true %}{% set ns.n = ns.n + m.content | length %}{% endif %}{% endfor %}{{ ns.found }} {{ ns.n }} {{ 'a' ~ 1 ~ 2.5 }} {{ 7 // 2 }} {{ 7 % 3 }} {{ 3 is odd }} {{ [1, 2] + [3] }}",
    "strings": "{% for m in messages %}{{ m.content.split('\\n') | length }}{{ m.content.replace('H', 'J') }}{{ m.content.startswith('H') }}{{ m.content.strip() | default('empty', true) }}{{ 'i' in m.content }}{{ m.name | default('-') }}{{ m.role == 'user' and not loop.last }}\n{% endfor %}{%- for i in range(3) -%} {{ i }} {%- endfor %}",
}

models = {"qwen3": config("../qwen3/tokenizer_config.json"), "tinygsm": config("../../../models/tinygsm/tokenizer_config.json")}
sources = {name: c["chat_template"] for name, c in models.items()} | templates
special = {name: {k: c[k] for k in ("bos_token", "eos_token", "pad_token", "unk_token") if c.get(k)} for name, c in models.items()}

out = []
for name, source in sources.items():
    template = env.from_string(source)
    rendered = []
    for c in conversations:
        kwargs = special.get(name, {}) | {k: v for k, v in c.items() if k == "enable_thinking"}
        try:
            rendered.append({"text": template.render(messages=c["messages"], tools=c.get("tools"), documents=None, add_generation_prompt=c.get("add_generation_prompt", False), **kwargs)})
        except TemplateError as e:
            rendered.append({"error": str(e)})
    out.append({"name": name, "template": templates.get(name, ""), "rendered": rendered})
with open(os.path.join(here, "chat.golden.json"), "w", encoding="utf-8") as f:
    json.dump({"conversations": conversations, "templates": out}, f, ensure_ascii=False, indent=1)
