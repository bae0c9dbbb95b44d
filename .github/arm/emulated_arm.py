"""The compiled kernels of 64-bit ARM, run by an emulator on a processor of any kind.

As a pytest plugin (``-p emulated_arm``) it puts the library that
``EMULATED_ARM_LIBRARY`` names in the place of the compiled kernels.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from flwr_dpkmeans.kernels.implementation import Kernels, using

VARIABLE = "EMULATED_ARM_LIBRARY"
PAGE = 1 << 12
WINDOW = 1 << 24
"""Bytes of this process that are mapped at a time, at their own addresses."""
LIBRARY, FUNCTIONS, END = 0x100_0000, 0x1000_0000, 0x1001_0000
STACK, STACK_SIZE = 0x2000_0000, 1 << 20
RETURN = bytes.fromhex("c0035fd6")
FLOATS_ON = 0x300000
"""In the register that allows floating point."""
COPIED, RELATIVE = (257, 1025, 1026), 1027
"""Relocations: a symbol's address, and an offset in the library."""
Size, Pointer = ctypes.c_size_t, ctypes.c_void_p
C_FUNCTIONS = {
    "malloc": (Size,),
    "calloc": (Size, Size),
    "aligned_alloc": (Size, Size),
    "free": (Pointer,),
    "memset": (Pointer, ctypes.c_int, Size),
    "memcpy": (Pointer, Pointer, Size),
}
"""What the library calls: this process's own functions do it."""


class EmulatedLibrary:
    """Functions of an ARM library by name, called as those of `ctypes.CDLL`."""

    def __init__(self, path: Path) -> None:
        self._machine = self._machine_with_floats()
        self._host = ctypes.CDLL(None)
        self._outside = [self._c_function(name) for name in C_FUNCTIONS]
        self._symbols = self._load(path)
        self._turn = Lock()

    def __getattr__(self, name: str) -> Callable[..., int]:
        address = self.__dict__["_symbols"][name]

        def call(*arguments: float | None) -> int:
            with self._turn:
                return self._call(address, arguments, call.argtypes)

        call.argtypes = ()
        return call

    def _machine_with_floats(self) -> Any:
        import unicorn

        machine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        machine.reg_write(unicorn.arm64_const.UC_ARM64_REG_CPACR_EL1, FLOATS_ON)
        machine.mem_map(STACK, STACK_SIZE)
        machine.mem_map(FUNCTIONS, END - FUNCTIONS)
        machine.mem_write(FUNCTIONS, RETURN * ((END - FUNCTIONS) // 4))
        machine.hook_add(
            unicorn.UC_HOOK_CODE, self._call_outside, None, FUNCTIONS, END - PAGE
        )
        unmapped = (
            unicorn.UC_HOOK_MEM_READ_UNMAPPED | unicorn.UC_HOOK_MEM_WRITE_UNMAPPED
        )
        machine.hook_add(unmapped, self._map_window)
        return machine

    def _c_function(self, name: str) -> Any:
        function = getattr(self._host, name)
        function.argtypes, function.restype = C_FUNCTIONS[name], Pointer
        return function

    def _load(self, path: Path) -> dict[str, int]:
        """Copy the library into the machine's memory, and return its functions."""
        from elftools.elf.elffile import ELFFile

        with path.open("rb") as file:
            library = ELFFile(file)
            segments = [
                segment
                for segment in library.iter_segments()
                if segment["p_type"] == "PT_LOAD"
            ]
            end = max(segment["p_vaddr"] + segment["p_memsz"] for segment in segments)
            self._machine.mem_map(LIBRARY, -(-end // PAGE) * PAGE)
            for segment in segments:
                self._machine.mem_write(LIBRARY + segment["p_vaddr"], segment.data())
            symbols = library.get_section_by_name(".dynsym")
            names = [symbol.name for symbol in symbols.iter_symbols()]
            addresses = [
                self._address(symbol.name, symbol["st_value"])
                for symbol in symbols.iter_symbols()
            ]
            for section in library.iter_sections():
                if section["sh_type"] == "SHT_RELA":
                    for relocation in section.iter_relocations():
                        self._relocate(relocation, addresses)
        return dict(zip(names, addresses, strict=True))

    def _address(self, name: str, offset: int) -> int:
        if name in C_FUNCTIONS:
            return FUNCTIONS + 4 * list(C_FUNCTIONS).index(name)
        return LIBRARY + offset

    def _relocate(self, relocation: Any, addresses: list[int]) -> None:
        kind = relocation["r_info_type"]
        assert kind in (*COPIED, RELATIVE), f"relocation {kind} is new"
        base = LIBRARY if kind == RELATIVE else addresses[relocation["r_info_sym"]]
        value = base + relocation["r_addend"]
        target = LIBRARY + relocation["r_offset"]
        self._machine.mem_write(target, value.to_bytes(8, "little"))

    def _map_window(
        self,
        machine: Any,
        access: int,
        address: int,
        size: int,
        value: int,
        data: object,
    ) -> bool:
        """Map this process's memory where the machine first looks at it."""
        for touched in {address, address + size - 1}:
            start = touched // WINDOW * WINDOW
            if all(start != first for first, _, _ in machine.mem_regions()):
                machine.mem_map_ptr(start, WINDOW, 3, ctypes.c_void_p(start))
        return True

    def _call_outside(
        self, machine: Any, address: int, size: int, data: object
    ) -> None:
        from unicorn.arm64_const import UC_ARM64_REG_X0

        function = self._outside[(address - FUNCTIONS) // 4]
        arguments = [
            machine.reg_read(UC_ARM64_REG_X0 + index)
            for index in range(len(function.argtypes))
        ]
        machine.reg_write(UC_ARM64_REG_X0, function(*arguments) or 0)

    def _call(
        self,
        address: int,
        arguments: tuple[float | None, ...],
        types: tuple[type, ...],
    ) -> int:
        """Call a function with arguments where ARM's convention has them."""
        from unicorn import arm64_const as registers

        machine = self._machine
        pairs = list(zip(arguments, types, strict=True))
        wholes = [int(value or 0) for value, kind in pairs if kind is not REAL]
        reals = [float(value or 0) for value, kind in pairs if kind is REAL]
        for index, whole in enumerate(wholes[:8]):
            machine.reg_write(registers.UC_ARM64_REG_X0 + index, whole)
        for index, real in enumerate(reals):
            bits = int.from_bytes(bytes(ctypes.c_double(real)), "little")
            machine.reg_write(registers.UC_ARM64_REG_D0 + index, bits)
        stack = b"".join(whole.to_bytes(8, "little") for whole in wholes[8:])
        top = STACK + STACK_SIZE - PAGE
        machine.mem_write(top, stack)
        machine.reg_write(registers.UC_ARM64_REG_SP, top)
        stop = END - 4
        machine.reg_write(registers.UC_ARM64_REG_LR, stop)
        machine.emu_start(address, stop)
        status = machine.reg_read(registers.UC_ARM64_REG_X0)
        return ctypes.c_int(status & 0xFFFFFFFF).value


REAL = ctypes.c_double


def pytest_configure(config: pytest.Config) -> None:
    """Choose the emulated library for all tests of the process."""
    library: Any = EmulatedLibrary(Path(os.environ[VARIABLE]))
    chosen = using(Kernels(library, "_baseline", "Compiled kernels of ARM, emulated."))
    chosen.__enter__()
    config.add_cleanup(lambda: chosen.__exit__(None, None, None))
