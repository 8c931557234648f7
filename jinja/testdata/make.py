#!/usr/bin/python3
"""Writes golden.json: what Jinja2 (Debian's python3-jinja2) makes of cases.txt, templates/ and conversations.json.

cases.txt has a template a line, in which ⏎ stands for a newline. A line that begins with "# " is a comment; one that begins with
"differs: REASON | " is a template of which the reference's answer is kept, and that we refuse or render otherwise for that reason.
"""
import json
import os
import reference

here = os.path.dirname(os.path.abspath(__file__))
variables = json.load(open(here + "/variables.json"))
cases = []
for line in open(here + "/cases.txt", encoding="utf-8"):
    line = line.rstrip("\n")
    if not line or line.startswith("# "):
        continue
    differs = ""
    if line.startswith("differs: "):
        differs, line = line[len("differs: "):].split(" | ", 1)
    template = line.replace("⏎", "\n")
    case = {"template": template, **reference.render(template, json.loads(json.dumps(variables)))}
    if differs:
        case["differs"] = differs
    cases.append(case)
conversations = json.load(open(here + "/conversations.json"))
templates = []
for name in sorted(os.listdir(here + "/templates")):
    source = open(here + "/templates/" + name, encoding="utf-8").read()
    templates.append({"name": name, "rendered": [reference.render(source, json.loads(json.dumps(c))) for c in conversations]})
with open(here + "/golden.json", "w", encoding="utf-8") as out:
    out.write('{"cases": [\n')
    out.write(",\n".join(json.dumps(c, ensure_ascii=False) for c in cases))
    out.write('\n], "templates": [\n')
    out.write(",\n".join(json.dumps(t, ensure_ascii=False) for t in templates))
    out.write("\n]}\n")
print(len(cases), "cases,", sum("error" in c for c in cases), "of them errors;", len(templates), "templates,", len(conversations), "conversations")
