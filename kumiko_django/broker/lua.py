"""Our own Lua scripts, each with the package's script that it runs in the same step.

A script of the package runs as a function of its own, with the keys and arguments that it expects:
those of the call, in their order. Ours get one more argument, the last one: what they are to do, as
JSON (``plan``).
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from kumiko_django.broker.bullmq import Script, script_text

_HEAD = """local all_keys, all_args = KEYS, ARGV
local plan = cjson.decode(all_args[#all_args])
"""
_FUNCTION = """local function {name}({parameter})
  local KEYS = {{unpack(all_keys, plan.{name}[1], plan.{name}[2])}}
  local ARGV = {{unpack(all_args, plan.{name}[3], plan.{name}[4])}}
  {setting}
{text}
end
"""
_DELAY = 5
"""Where the delay stands among the arguments of the package's ``moveToDelayed``."""


@lru_cache(maxsize=64)
def composed(*names: str, **package: str) -> Script:
    """A script of ours.

    Args:
        names: Files of ``broker/scripts/`` without their endings, in their order.
        package: The package's scripts by the name of the function that each becomes. ``plan`` says
            under the same name which keys and arguments are its: first and last of each, from 1.
    """
    functions = [_function(name, file_name) for name, file_name in package.items()]
    own = [files(__package__).joinpath("scripts", f"{name}.lua").read_text() for name in names]
    return Script.of("\n".join([_HEAD, *functions, *own]))


def _function(name: str, file_name: str) -> str:
    delays = name == "postpone"
    return _FUNCTION.format(
        name=name,
        parameter="delay" if delays else "",
        setting=f"ARGV[{_DELAY}] = delay" if delays else "",
        text=script_text(file_name),
    )
