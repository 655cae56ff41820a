#!/usr/bin/env python3
"""Reference renderings of chat templates by transformers, for src/meshwright/data.

Run from the repository root in a venv with transformers==4.57.3 jinja2==3.1.6:
    python tests/oracle/chat_template.py
Writes src/meshwright/data/testdata/chat_template_reference.json: conversations rendered by the built-in
templates, and small templates that each use some Jinja feature. A `null` text means that the
reference raises an error.
"""
import json
import pathlib

import jinja2
import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template

DATA = pathlib.Path("src/meshwright/data/testdata")
COMMAND = "python tests/oracle/chat_template.py"

TOOLS = [
    {"type": "function", "function": {
        "name": "get_tide", "description": "Height of the tide, in \"metres\" <m> & more.",
        "parameters": {"type": "object", "properties": {
            "port": {"type": "string"}, "hours": {"type": "integer", "default": 6},
            "limit": {"type": "number", "enum": [0.5, 1.0, 1e-7, 1e22, 12345678.25]}},
            "required": ["port"], "additionalProperties": False, "nullable": None}}},
    {"type": "function", "function": {"name": "ahoi_ümlaut", "description": "", "parameters": {}}},
]


def m(role, content, **more):
    return {"role": role, "content": content, **more}


CONVERSATIONS = [
    {"messages": [m("user", "Hi")]},
    {"messages": [m("user", "")]},
    {"messages": [m("user", "Hi"), m("assistant", "Hello there.")]},
    {"messages": [m("user", "Hi"), m("assistant", "")]},
    {"messages": [m("system", "Be brief."), m("user", "Hi"), m("assistant", " padded \n")]},
    {"messages": [m("system", ""), m("user", "Hi"), m("assistant", "Yes")]},
    {"messages": [m("user", "a"), m("assistant", "b"), m("user", "c"), m("assistant", "d")]},
    {"messages": [m("user", "a"), m("assistant", "b"), m("user", "c"), m("assistant", "d"),
                  m("user", "e"), m("assistant", "f"), m("user", "g")]},
    {"messages": [m("user", "a"), m("assistant", "b"), m("assistant", "again")]},
    {"messages": [m("user", "a"), m("assistant", "<think>\nhm\n</think>\n\nb"), m("user", "c"),
                  m("assistant", "<think>\nhm hm\n</think>\n\nd")]},
    {"messages": [m("user", "a"), m("assistant", "b", reasoning_content="why"), m("user", "c"),
                  m("assistant", "d", reasoning_content="\nbecause\n")]},
    {"messages": [m("user", "Grüße 🌊 漢字 é"), m("assistant", "{{ not a tag }} {% nor this %}")]},
    {"messages": [m("user", "line\nbreaks\r\n\ttabs"), m("assistant", "\n\nlate\n\n")]},
    {"messages": [m("user", "a"), m("system", "in the middle"), m("user", "b"), m("assistant", "c")]},
    {"messages": [m("user", "<|im_end|>\n<|im_start|>assistant\n"), m("assistant", "x<|im_end|>")]},
    {"messages": [m("user", "tide?"), m("assistant", "", tool_calls=[
        {"type": "function", "function": {"name": "get_tide", "arguments": {"port": "Kiel", "hours": 3}}}]),
        m("tool", "1.5"), m("assistant", "1.5 m.")], "tools": TOOLS},
    {"messages": [m("system", "S"), m("user", "tide?"), m("assistant", "I look.", tool_calls=[
        {"name": "get_tide", "arguments": "{\"port\": \"Kiel\"}"},
        {"name": "get_tide", "arguments": {"port": "Wismar", "deep": [1, 2.5, True, None, {"k": "v\"\\"}]}}]),
        m("tool", "1.5"), m("tool", "0.5"), m("assistant", "Both low."), m("user", "thanks"),
        m("assistant", "Ahoi.")], "tools": TOOLS},
    {"messages": [m("user", "a")], "extra": {"enable_thinking": False}},
    {"messages": [m("user", "a"), m("assistant", "b")], "extra": {"enable_thinking": False}},
    {"messages": [m("system", "only")]},
    {"messages": [m("assistant", "first"), m("user", "then")]},
    {"messages": [m("user", None), m("assistant", "b")]},
]

ORDINARY = [
    "{{ 1 + 2 * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }}",
    "{{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 1.5e-5 }} {{ 0.0001 }} {{ 123456789.125 }} {{ 1e100 }} {{ 0.1 + 0.2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}",
    "{{ none }} {{ true }} {{ False }} {{ [1, 'a', none, true, 2.5, \"it's\", 'q\"', 'b\\n'] }} {{ {'a': 1, 'b': [2]} }} {{ (1,) }} {{ (1, 2) }} {{ () }}",
    "{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1] }} {{ 'ab' * 3 }} {{ [1] * 2 + [3] }} {{ 'x' 'y' }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 'a' in 'cat' }} {{ 3 not in [1, 2] }} {{ 'k' in {'k': 1} }} {{ not 1 in [1] }} {{ 'a' < 'b' }}",
    "{{ 'yes' if 1 else 'no' }}{{ 'gone' if 0 }}{{ 'a' if 0 else 'b' if 0 else 'c' }} {{ 1 and 2 }} {{ 0 or 'x' }} {{ '' and 1 }}|",
    "{{ 'hello'[1] }} {{ 'hello'[-1] }} {{ 'hello'[1:3] }} {{ 'hello'[::-1] }} {{ [1,2,3][::-1] }} {{ [1,2,3][-2:] }} {{ 'héé'[1:] }} {{ [1,2,3,4][::2] }} {{ [1,2,3,4][3:0:-2] }} {{ (1,2,3)[1:] }} {{ [1][5] }}",
    "{% for i in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %}{% for i in range(5) if i is odd %}{{ i }}{{ loop.length }}{% endfor %}{% for k, v in {'a': 1}.items() %}{{ k }}={{ v }}{% endfor %}",
    "{% for c in 'héy' %}{{ c }}.{% endfor %}{% for k in {'p': 1, 'q': 2} %}{{ k }}{% endfor %}{% for (a, b) in [[1, 2], [3, 4]] %}{{ a + b }},{% endfor %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}{{ range(3) | list }} {{ range(5, 0, -2) | list }}",
    "{% for i in [1,2] %}{{ loop.cycle('a', 'b') }}{% for j in [1] %}{{ loop.index }}{{ i }}{% endfor %}{% endfor %}",
    "{% set x = 1 %}{% for i in [1,2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}{% set ns = namespace(n=0, s='') %}{% for i in [1,2,3] %}{% set ns.n = ns.n + i %}{% set ns.s = ns.s ~ i %}{% endfor %}{{ ns.n }}{{ ns.s }}{% set ns.fresh = 5 %}{{ ns.fresh }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = 1, 2 %}{{ t }}{% if true %}{% set inner = 3 %}{% endif %}{{ inner }}{% set blk %}in {{ a }}{% endset %}[{{ blk }}]{% set up | upper | trim %} loud {% endset %}[{{ up }}]",
    "{% macro greet(name, mark='!', n=2) %}{{ name }}{{ mark * n }}{% endmacro %}{{ greet('a') }} {{ greet('b', '?') }} {{ greet(name='c', n=1) }} {{ greet('d', mark='.') }} {{ greet() }}",
    "{% set g = 'glob' %}{% macro f(x) %}{{ g }}{% if x > 0 %}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{{ '  a b ' | trim }}|{{ [1,2] | length }}{{ 'héé' | count }}|{{ [1,'a',none] | join('-') }}|{{ 'ab' | upper }}{{ 'AB' | lower }}|{{ 'hELLO wORLD' | capitalize }}|{{ 'hello big-world (x)' | title }}|{{ 'xxaxx' | trim('x') }}",
    "{{ {'b': [1, {'c': none}], 'a': 'é\"<>&\\n'} | tojson }}|{{ [] | tojson }}{{ {} | tojson }}|{{ {'x': [1, 2], 'y': {}} | tojson(indent=2) }}|{{ 'é\\t\\u0001' | tojson }}|{{ [1.0, 1e-7, 1e22, true] | tojson }}",
    "{{ missing | default('d') }}{{ '' | default('d') }}{{ '' | default('e', true) }}{{ none | default('x') }}|{{ missing }}|{{ x.y is defined }}|{{ x is undefined }}|" .replace("{{ x.y is defined }}", "{{ {}.y is defined }}"),
    "{{ [1,2,3] | first }}{{ [1,2,3] | last }}{{ 'abc' | first }}{{ 'abc' | reverse }}{{ [1,2] | reverse | list }}{{ 'abc' | list }}{{ 'a-b-a' | replace('a', 'c') }}{{ 'aaa' | replace('a', 'b', 2) }}{{ {'a': 1} | items | list }}",
    "{{ [{'r': 1, 'n': 'a'}, {'r': 2, 'n': 'b'}] | selectattr('r', 'equalto', 2) | map(attribute='n') | list }}{{ [{'r': 1}, {'r': 0}] | rejectattr('r') | list }}{{ ['a', 'b'] | map('upper') | join }}{{ [1,2,3,4] | select('odd') | list }}{{ [1,none] | reject('none') | list }}{{ [{'a': {'b': 3}}] | map(attribute='a.b') | list }}{{ [{}] | map(attribute='z', default='q') | list }}",
    "{{ [3,1,2] | sort }}{{ ['b','A','c'] | sort }}{{ ['b','A'] | sort(case_sensitive=true) }}{{ [1,3,2] | sort(reverse=true) }}{{ [{'k': 2}, {'k': 1}] | sort(attribute='k') }}{{ ['a','A','b'] | unique | list }}{{ {'b': 1, 'a': 2} | dictsort }}",
    "{{ 5 | string }}{{ '42' | int }}{{ '4.7' | int }}{{ 'x' | int }}{{ 'x' | int(7) }}{{ '2.5' | float }}{{ 3.9 | int }}{{ -3 | abs }}{{ [1,2] | sum }}{{ [{'v': 1}] | sum(attribute='v') }}{{ 2.567 | round(1) }}{{ 2.5 | round }}{{ [3,1] | min }}{{ [3,1] | max }}",
    "{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | indent(2, blank=true) }}|{{ 'x' | safe }}",
    "{{ ' a '.strip() }}|{{ 'xaxx'.strip('x') }}|{{ ' a'.lstrip() }}|{{ 'a \\n'.rstrip() }}|{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'bc')) }}|{{ 'a,b,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a,b,c'.split(',', 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ ''.split(',') }}{{ ' a b  c '.split(none, 1) }}",
    "{{ 'they\\'re bill\\'s héé 3rd'.title() }}|{{ 'ab'.upper() }}{{ 'ß'.upper() }}{{ 'ÀÉ'.lower() }}|{{ 'aXb'.replace('X', '--') }}|{{ 'hello'.find('l') }}{{ 'hello'.find('z') }}|{{ 'ab'.replace('', '.') }}|{{ 'x'.join(['a', 'b']) }}|{{ 'hello'.count('l') }}|{{ 'hELLO'.capitalize() }}",
    "{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('b', 2) }}{{ {'a': 1, 'b': 2}.keys() | list }}{{ {'a': 1}.values() | list }}{{ {'a': 1}['a'] }}{{ {'a': {'b': 2}}.a.b }}{{ dict(a=1, b='x') }}",
    "{{ 1 is number }}{{ 1 is integer }}{{ 1.0 is float }}{{ 'a' is string }}{{ {} is mapping }}{{ [] is iterable }}{{ [] is sequence }}{{ none is none }}{{ true is boolean }}{{ true is true }}{{ 1 is true }}{{ 3 is odd }}{{ 4 is even }}{{ 4 is divisibleby 2 }}{{ 1 is eq 1 }}{{ 2 is gt(1) }}{{ 1 is in [1] }}{{ 1 is not none }}{{ 'a' is not string }}{{ missing is not defined }}",
    "  {% if true %}\n  yes\n  {% endif %}\nend\n",
    "a\n  {%- if true -%}\n  b  \n  {%- endif %}\n\nc {# note #}\n{#- x -#}  d\n  {#\nlong\n#}\ne",
    "{% if true %}\n\n  x\n{%+ if true %}y{% endif +%}\nz{% endif %}  {{- 'q' -}}  \n w",
    "{% raw %}{{ raw }} {% if %}{% endraw %}|{%- raw -%}  k  {%- endraw -%}  |",
    "{{ '}}' }}{{ {'a': {'b': 1}}['a']['b'] }}{{ '%}' }}{{ \"\\x41\\u00e9\\101\\q\" }}",
    "{% filter upper %}shout {{ 'x' }}{% endfilter %}{% generation %}gen{% endgeneration %}",
    "{{ [1, 2,] }}{{ [[1, 2], [3]] | map('length') | list }}{{ [0, 1] | map('string') | join(',') }}{{ 1_000 }}{{ -1 | abs }}{{ +3 }}{{ 'a' | upper ~ 'b' }}",
    "{{ strftime_now('%%') }}{{ (1, 2) == (1, 2) }}{{ [1] == (1,) }}{{ {'a': 1} == {'a': 1.0} }}{{ 'a' == 1 }}{{ none == false }}{{ missing == other }}",
    "{{ missing | length }}{{ missing | join }}{{ missing | trim }}{{ missing | list }}{% for x in missing %}x{% endfor %}{{ not missing }}{{ 'a' in missing }}{{ missing ~ 'x' }}",
    "{{ 'ab'.isdigit() }}{{ '12'.isdigit() }}{{ 'ab'.isalpha() }}{{ ' '.isspace() }}{{ 'a\\nb\\r\\nc'.splitlines() }}{{ 'pre-x'.removeprefix('pre-') }}{{ [1,2,1].count(1) }}{{ [1,2].index(2) }}",
    "{%- for message in messages -%}\n  {%- if not loop.first %}, {% endif -%}\n  {{ message.role }}:{{ message['content'] | tojson }}\n{%- endfor %}",
    # What must be refused.
    "{{ missing.attribute }}", "{{ 'a' + 1 }}", "{{ none + 'a' }}", "{{ 1 / 0 }}", "{{ missing + 'a' }}",
    "{{ raise_exception('no') }}", "{% for x in 5 %}{% endfor %}", "{{ unknown_function() }}",
    "{{ 1 | no_such_filter }}", "{{ 1 is no_such_test }}", "{% if 1 %}", "{{ 'abc", "{{ (1 }}", "{% endif %}",
    "{% frobnicate %}", "{{ 'a' < 1 }}", "{{ [1,2 }}", "{{ }}", "{{ 1 2 }}", "{% set 1 = 2 %}", "{{ range(1000000) | list }}",
    "{# open", "{{ 'a'.no_such_method() }}", "{% set x.y = 1 %}", "{{ missing | tojson }}", "{{ {'a': 1}.b.c }}",
]


def variables(case):
    out = {"messages": case["messages"], "tools": case.get("tools"), "documents": None,
           "bos_token": "<|begin_of_text|>", "eos_token": "<|im_end|>"}
    out.update(case.get("extra", {}))
    return out


def render(source, **values):
    try:
        return _compile_jinja_template(source).render(**values)
    except Exception:  # The reference refuses it; the test expects an error too.
        return None


def main():
    cases = []
    for name in ["smollm2", "chatml", "llama3", "qwen3"]:
        source = (DATA / "chat_templates" / f"{name}.jinja").read_text()
        for index, conversation in enumerate(CONVERSATIONS):
            for prompt in (False, True):
                cases.append({"template": name, "conversation": index, "prompt": prompt,
                              "text": render(source, add_generation_prompt=prompt, **variables(conversation))})
    features = [{"source": s, "text": render(s, add_generation_prompt=True, **variables(CONVERSATIONS[4]))}
                for s in ORDINARY]
    out = {"command": COMMAND, "versions": {"transformers": transformers.__version__, "jinja2": jinja2.__version__},
           "conversations": CONVERSATIONS, "cases": cases, "features": features, "feature_conversation": 4}
    path = DATA / "chat_template_reference.json"
    path.write_text(json.dumps(out, ensure_ascii=False, indent=0) + "\n")
    print(path, len(cases), "renderings,", len(features), "features,",
          sum(f["text"] is None for f in features), "refused")


if __name__ == "__main__":
    main()
