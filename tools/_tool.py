"""What a tool is: a plain function of (arguments, context) -> Result, and how it is declared and described."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, get_type_hints

import msgspec

from tools._text import ascii_json, readable_json, shown

A = TypeVar("A", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool answers (MCP `CallToolResult`).

    text        the one text block
    structured  the same as a JSON value, for tools with an `outputSchema`
    is_error    True: the tool could not do it. None: the member is left out. False is shown only by `read_tree`.
    twin        `text` is `structured` as JSON (made by the function `structured`), so one can be had from the other
    """

    text: str
    structured: dict[str, Any] | None = None
    is_error: bool | None = None
    twin: bool = field(default=False, compare=False)


class ToolError(Exception):
    """The tool cannot do what was asked. `str(error)` is one sentence that says what came and what to do next."""

    def __init__(self, text: str, structured: dict[str, Any] | None = None) -> None:
        super().__init__(text)
        self.structured = structured


def _no_progress(done: int, total: int | None, message: str) -> None:
    """Used where the caller asked for no progress."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a call may know beside its arguments.

    roots       absolute directories; only what lies below one of them may be read
    hidden      absolute directories never read whatever the roots say (the gateway's keys and tokens)
    repository  the git store of `read_tree`, None when none was configured or found
    limit       bytes that the finished result (`encode`) may have
    deadline    `time.monotonic()` at which the call is stopped from outside
    progress    tells how far a walk is: (entries done, entries in all or None, a few words); cheap to call often
    """

    roots: tuple[str, ...] = ("/",)
    hidden: tuple[str, ...] = ()
    repository: str | None = None
    limit: int = 64 * 1024 * 1024
    deadline: float = float("inf")
    progress: Callable[[int, int | None, str], None] = field(default=_no_progress)


@dataclass(frozen=True, slots=True)
class Tool:
    """A declared tool. `smaller` ends the sentence about a result over the limit: what to ask for instead."""

    name: str
    title: str
    group: str
    verb: str
    description: str
    arguments: type[msgspec.Struct]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    smaller: str
    run: Callable[[Any, Context], Result]
    fault: Callable[[str, Context], Result]

    @property
    def safe_name(self) -> str:
        """The name for model APIs that allow only `[A-Za-z0-9_-]`."""
        return self.name.replace("/", "_")

    def descriptor(self, name: str) -> dict[str, Any]:
        """The tool's entry in `tools/list`, under the spelling of its name that this client is shown."""
        entry: dict[str, Any] = {
            "name": name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input_schema,
        }
        if self.output_schema is not None:
            entry["outputSchema"] = self.output_schema
        entry["annotations"] = {
            "title": self.title,
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        }
        entry["tools_group"] = self.group
        entry["linuxctl_verb"] = self.verb
        return entry


def error_result(text: str, _context: Context | None = None) -> Result:
    """How most tools refuse: the sentence as an `isError` result."""
    return Result(text, is_error=True)


def tool(
    name: str,
    *,
    title: str,
    group: str,
    verb: str,
    description: str,
    smaller: str,
    input_schema: dict[str, Any] | None = None,
    output_schema: dict[str, Any] | None = None,
    fault: Callable[[str, Context], Result] = error_result,
) -> Callable[[Callable[[A, Context], Result]], Tool]:
    """Declares a function `(arguments: a msgspec Struct, context) -> Result` as a tool.

    The input schema is made from the arguments type unless a literal one is given. `fault` makes the result for
    arguments that do not fit (a sentence and the context in, a Result out).
    """

    def declare(function: Callable[[A, Context], Result]) -> Tool:
        arguments: type[msgspec.Struct] = get_type_hints(function)["arguments"]
        return Tool(
            name=name,
            title=title,
            group=group,
            verb=verb,
            description=description,
            arguments=arguments,
            input_schema=input_schema if input_schema is not None else _schema(arguments),
            output_schema=output_schema,
            smaller=smaller,
            run=function,
            fault=fault,
        )

    return declare


def _schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """The arguments type as a JSON Schema that stands alone (each `$ref` replaced by what it names)."""
    (schema,), definitions = msgspec.json.schema_components([arguments], ref_template="{name}")

    def inline(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return inline(definitions[node["$ref"]])
            return {k: inline(v) for k, v in node.items()}
        if isinstance(node, list):
            return [inline(v) for v in node]
        return node

    whole: dict[str, Any] = inline(schema)
    whole.pop("title", None)
    return whole


def call(tool: Tool, arguments: Any, fault: str | None, context: Context) -> Result:
    """One call from parsed JSON to a Result. `fault` is what the JSON layer found wrong inside the arguments
    (a member that stands twice, a lone surrogate); the tool answers it as any other bad argument."""
    if fault is not None:
        return tool.fault(fault, context)
    try:
        typed = msgspec.convert(arguments, tool.arguments)
    except msgspec.ValidationError as error:
        return tool.fault(argument_sentence(str(error), tool.input_schema), context)
    try:
        return tool.run(typed, context)
    except ToolError as error:
        return Result(str(error), error.structured, is_error=True)
    except OSError as error:
        where = f": {shown(os.fsdecode(error.filename))}" if isinstance(error.filename, str | bytes) else ""
        return error_result(f"{error.strerror or error}{where}")


_AT: Final = re.compile(r" - at `\$\.?(.*)`$")
_EXPECTED: Final = re.compile(r"^Expected `(.+?)`(?:, got `(.+?)`| (.+))$")
_MISSING: Final = re.compile(r"^Object missing required field `(.+?)`")
_JSON_NAMES: Final = {"str": "string", "bool": "boolean", "int": "integer", "float": "number"}


def argument_sentence(message: str, schema: dict[str, Any]) -> str:
    """msgspec's words for a misfit as a sentence in JSON's terms that names the argument, what came and what is
    allowed."""
    if missing := _MISSING.match(message):
        return f"argument '{missing[1]}' is required: {_allowed(missing[1], schema)}"
    where = at[1] if (at := _AT.search(message)) else ""
    plain = _AT.sub("", message)
    name = re.split(r"[.\[]", where, maxsplit=1)[0]
    if not where:
        return "arguments must be a JSON object"
    if expected := _EXPECTED.match(plain):
        wanted, got, bound = expected.groups()
        wanted = " or ".join(_JSON_NAMES.get(w, w) for w in wanted.split(" | "))
        came = f", not {_JSON_NAMES.get(got, got)}" if got else ""
        return f"argument '{where}' must be {wanted}{' ' + bound if bound else ''}{came}; {_allowed(name, schema)}"
    return f"argument '{where}': {plain}; {_allowed(name, schema)}"


def _allowed(name: str, schema: dict[str, Any]) -> str:
    described = str(schema.get("properties", {}).get(name, {}).get("description", "see the tool's inputSchema"))
    return described.split("\n")[0].rstrip(".")


def encode(result: Result) -> bytes:
    """The finished JSON bytes of a `tools/call` result, ASCII only. Members: content, structuredContent, isError."""
    parts = ['{"content":[{"type":"text","text":']
    if result.twin and result.text.isascii():
        # Most results: JSON in ASCII has only these two left to escape. Half the time of the other branch.
        parts += ['"', result.text.replace("\\", "\\\\").replace('"', '\\"'), '"}],"structuredContent":', result.text]
    else:
        parts += [ascii_json(result.text), "}]"]
        if result.structured is not None:
            parts += [',"structuredContent":', ascii_json(result.structured)]
    if result.is_error is not None:
        parts.append(',"isError":true' if result.is_error else ',"isError":false')
    parts.append("}")
    return "".join(parts).encode("ascii")


def structured(value: dict[str, Any], is_error: bool | None = None) -> Result:
    """An object-shaped result: as `structuredContent` and, equal to it, as compact JSON in the text block."""
    return Result(readable_json(value), value, is_error, twin=True)


def bounded(tool: Tool, result: Result, context: Context) -> bytes:
    """`encode`, unless that is over the caller's limit: then an error result that names size, limit and way out."""
    answer = encode(result)
    if len(answer) <= context.limit:
        return answer
    return encode(
        error_result(
            f"result of {len(answer):,} bytes is over this session's limit of {context.limit:,} bytes - {tool.smaller}"
        )
    )
