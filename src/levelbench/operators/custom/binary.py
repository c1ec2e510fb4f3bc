"""The C functions of a compiled operator file."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

from levelbench.errors import DefinitionError
from levelbench.operators.custom import abi

__all__ = ["Library", "address_of"]


class Library:
    """The C functions of one compiled file. Loading runs code of the file: it can crash the process."""

    def __init__(self, path: Path, source: Path) -> None:
        self.path, self.source = path, source
        try:
            self._loaded = ctypes.CDLL(str(path))
            found = self._loaded.levelbench_abi()
        except (OSError, AttributeError) as error:
            raise DefinitionError(f"the operator file {source}", str(error), "include levelbench.h") from None
        if found != abi.ABI:
            what = f"its header is of ABI {found}, and this is {abi.ABI}"
            raise DefinitionError(f"the operator file {source}", what, "use the header that levelbench ships")
        pointer, integer = ctypes.c_void_p, ctypes.c_int32
        self.forward = self._function("forward", integer, pointer, pointer)
        self.backward = self._function("backward", integer, pointer, pointer)
        self.create = self._function("create", pointer, integer, pointer, integer, pointer, ctypes.c_int64)
        self.infer = self._function("infer", integer, *[pointer] * 4, ctypes.c_int64, pointer)
        self.workspace = self._function("workspace", integer, pointer, pointer, integer, pointer)
        self.cost = self._function("cost", integer, *[pointer] * 5)
        self.descriptions = self._descriptions()

    def _function(self, name: str, answers: Any, *takes: Any) -> Any:
        found = getattr(self._loaded, f"levelbench_{name}")
        found.restype, found.argtypes = answers, takes
        return found

    def _descriptions(self) -> list[dict[str, Any]]:
        describe = self._function("describe", ctypes.c_char_p, ctypes.c_int32)
        found = [json.loads(describe(at)) for at in range(self._loaded.levelbench_count())]
        if not found:
            do = "write LEVELBENCH_OPERATOR(Name, float, double) after the struct"
            raise DefinitionError(f"the operator file {self.source}", "it defines no operator", do)
        for each in found:
            if each["wrong"]:
                what = f"{each['name']} refuses its own defaults: {each['wrong']}"
                raise DefinitionError(f"the operator file {self.source}", what, "choose defaults that can be used")
        return found


def address_of(function: Any) -> int:
    """The address of one of a library's functions, for callers other than Python."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0
