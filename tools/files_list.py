"""`files/list`: a directory as GNU `ls` shows it, or its entries as JSON, YAML or a table."""

from __future__ import annotations

import errno
import os
from typing import Annotated, Literal

import msgspec

from tools._paths import open_directory
from tools._text import shown
from tools._tool import Context, Result, ToolError, tool
from tools.ls import columns, records
from tools.ls.entry import Wanted, read
from tools.ls.order import Sort, ordered


class FilesList(msgspec.Struct, frozen=True):
    """The arguments of `files/list`."""

    path: Annotated[
        str,
        msgspec.Meta(description="Absolute path of the directory to list, such as /var/log. A link to one is entered."),
    ]
    all: Annotated[bool, msgspec.Meta(description="true: names that begin with a dot too, `.` and `..` (ls -a).")] = (
        False
    )
    long: Annotated[
        bool,
        msgspec.Meta(
            description="true (default): mode, links, owner, group, size, date, name and link target (ls -l). "
            "false: names only, one a line (ls -1)."
        ),
    ] = True
    human_readable: Annotated[
        bool, msgspec.Meta(description="true: sizes like 4.0K and 1.5M (ls -h). false (default): exact bytes.")
    ] = False
    sort: Annotated[
        Sort,
        msgspec.Meta(
            description="name (default, byte order), size (largest first, ls -S) or time (newest first, ls -t)."
        ),
    ] = "name"
    reverse: Annotated[bool, msgspec.Meta(description="true: the order of `sort` turned round (ls -r).")] = False
    dirs_first: Annotated[
        bool,
        msgspec.Meta(description="true: directories, and links to them, before files (ls --group-directories-first)."),
    ] = False
    numeric_ids: Annotated[
        bool, msgspec.Meta(description="true: owner and group as numbers instead of names (ls -n).")
    ] = False
    output_format: Annotated[
        Literal["text", "json", "yaml", "table", "wide"],
        msgspec.Meta(
            description="text (default: what ls prints), json or yaml (every field of every entry, sizes in bytes), "
            "table (modified, name, size, is_dir) or wide (every field as a table)."
        ),
    ] = "text"
    privileged: Annotated[
        bool,
        msgspec.Meta(
            description="true: run as root, where an administrator has allowed it; refused on this gateway. "
            "false (default): as your own account."
        ),
    ] = False


@tool(
    "files/list",
    title="List a directory like ls -la",
    group="files",
    verb="list",
    description=(
        "Lists one directory exactly as GNU `ls -l` prints it: type and permissions, links, owner, group, size, date "
        "and link target of each entry; sorted by name, size or time. Links are shown, never followed. "
        "Use it to see what is in a directory with sizes, owners, permissions or dates: what is large, new, "
        "writable, owned by whom. "
        "For bare names, or everything below a directory, use list_dir; for the text of files, read_files_batch; for "
        "the files of a git commit, read_tree."
    ),
    smaller="list a smaller directory, or set `long` to false for the names only",
)
def files_list(arguments: FilesList, context: Context) -> Result:
    """The listing. Text has no `structuredContent`; the other formats have `{"entries": [...]}`."""
    if arguments.privileged:
        raise ToolError(
            "root calls are not configured on this gateway - call again without `privileged` to list "
            f"{shown(arguments.path)} as your own account"
        )
    text = arguments.output_format == "text"
    wanted = Wanted(
        dotfiles=arguments.all,
        status=not text or arguments.long or arguments.sort != "name",
        details=not text or arguments.long,
        directories=arguments.dirs_first,
    )
    try:
        descriptor = open_directory(arguments.path, context)
        try:
            found = read(descriptor, wanted, context.progress)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _refusal(arguments.path, error) from error
    entries = ordered(found, arguments.sort, reverse=arguments.reverse, dirs_first=arguments.dirs_first)
    if not text:
        return _structured(records.records(entries), arguments)
    if not arguments.long:
        return Result(columns.short(entries))
    return Result(columns.long(entries, human_readable=arguments.human_readable, numeric_ids=arguments.numeric_ids))


def _structured(listing: list[records.Record], arguments: FilesList) -> Result:
    if arguments.output_format == "json":
        text = records.as_json(listing)
    elif arguments.output_format == "yaml":
        text = records.as_yaml(listing)
    else:
        text = records.as_table(
            listing,
            wide=arguments.output_format == "wide",
            human_readable=arguments.human_readable,
            numeric_ids=arguments.numeric_ids,
        )
    return Result(text, {"entries": listing})


def _refusal(path: str, error: OSError) -> ToolError:
    """The kernel's refusal as a sentence with a way on."""
    parent = shown(os.path.dirname(path.rstrip("/")) or "/")
    if error.errno == errno.ENOTDIR:
        return ToolError(
            f"not a directory: {shown(path)} - list its parent, {parent}, to see it with its size and date"
        )
    words = os.strerror(error.errno) if error.errno else str(error)
    if error.errno == errno.ENOENT:
        return ToolError(f"cannot list {shown(path)}: {words} - list its parent, {parent}, to see what is there")
    if error.errno in (errno.EACCES, errno.EPERM):
        return ToolError(f"cannot list {shown(path)}: {words} - the account of this session may not read it")
    return ToolError(f"cannot list {shown(path)}: {words}")
