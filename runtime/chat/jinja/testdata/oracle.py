"""Renders templates with Jinja2, set up the way the transformers library sets it up.

Reads {"now": ISO time, "vars": {...}, "cases": [{"template": ..., "vars": {...} or nothing}]} from stdin; writes a list of
{"text": ...} or {"error": message, "raised": whether the template raised it itself} to stdout.
"""
import datetime
import json
import sys

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Raised(jinja2.exceptions.TemplateError):
    pass


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


def environment(now):
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise Raised(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = now.strftime
    return env


def main():
    job = json.load(sys.stdin)
    env = environment(datetime.datetime.fromisoformat(job["now"]))
    results = []
    for case in job["cases"]:
        try:
            variables = case.get("vars") or job.get("vars") or {}
            results.append({"text": env.from_string(case["template"]).render(**variables)})
        except Raised as e:
            results.append({"error": str(e), "raised": True})
        except Exception as e:  # whatever Python says, the template is refused
            results.append({"error": f"{type(e).__name__}: {e}"})
    json.dump(results, sys.stdout, ensure_ascii=True, indent=1)


main()
