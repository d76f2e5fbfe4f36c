"""PTX as C++ for emulation.cpp: `python ptx.py PTX CPP`. It knows the instructions that Halide's kernels have, and ends with an error at any other."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

# A register holds bits; what they mean is the instruction's affair.
PRELUDE = """
typedef unsigned int u32; typedef int s32; typedef unsigned long long u64; typedef long long s64; typedef float f32; typedef u32 b32; typedef u64 b64;
template <class To, class From> static inline To bits(From from) {
    To to{};
    __builtin_memcpy(&to, &from, sizeof to < sizeof from ? sizeof to : sizeof from);
    return to;
}
"""
SPECIAL = {f"%{name}.{axis}": f"emulated->{field}.{axis}" for name, field in (("tid", "thread"), ("ctaid", "block"), ("ntid", "block_size")) for axis in "xyz"}
BINARY = {"add": "+", "sub": "-", "mul": "*", "mul.lo": "*", "add.rn": "+", "sub.rn": "-", "mul.rn": "*", "and": "&", "or": "|", "xor": "^"}
COMPARED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


class Unknown(Exception):
    pass


def translated(ptx: str) -> str:
    """C++ of the kernels of a program."""
    text = re.sub(r"//.*", "", ptx)
    out = [PRELUDE]
    for name, parameters, body in re.findall(r"\.visible\s+\.entry\s+(\w+)\s*\((.*?)\)\s*\{(.*?)\n\}", text, re.DOTALL):
        declared = re.findall(r"\.param\s+\.(\w+)[^,]*?(\w+)\s*(?:,|$)", parameters)
        out.append(f'extern "C" void {name}({", ".join(f"{kind} {parameter}" for kind, parameter in declared)}) {{')
        statements = [statement.strip() for statement in re.split(r";|(?<=:)\s*\n", body)]
        out += [line(statement) for statement in statements if statement]
        out.append("}")
    return "\n".join(out)


def line(statement: str) -> str:
    """C++ of a statement."""
    if statement.endswith(":"):
        return f"{label(statement[:-1])}:;"
    if found := re.fullmatch(r"\.reg\s+\.(\w+)\s+%(\w+)<(\d+)>", statement):
        return f"{'bool' if found[1] == 'pred' else found[1]} {found[2]}_[{found[3]}];"
    if found := re.fullmatch(r"\.reg\s+\.b64\s+%(SPL?)", statement):
        return f"u64 {found[1]}_;"
    if found := re.fullmatch(r"\.local\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d+)\]", statement):
        return f"alignas(16) char {found[2]}[{found[3]}];"
    guard, statement = re.fullmatch(r"(?:@(!?%\w+)\s+)?(.*)", statement, re.DOTALL).groups()  # type: ignore[union-attr]
    opcode, _, rest = statement.replace("\t", " ").partition(" ")
    code = instruction(opcode, operands(rest))
    return f"if ({guard.replace(guard.lstrip('!'), value(guard.lstrip('!')))}) {{ {code} }}" if guard else code


def operands(text: str) -> list[str]:
    """Operands of an instruction; those in braces are one."""
    return [part.strip() for part in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", text)]


def label(name: str) -> str:
    return name.strip().replace("$", "L_")


def value(operand: str) -> str:
    """C++ of an operand: a register, a constant, a special register or the address of an array."""
    if operand in SPECIAL:
        return SPECIAL[operand]
    if operand in ("%SP", "%SPL"):
        return f"{operand[1:]}_"
    if found := re.fullmatch(r"%([a-z]+)(\d+)", operand):
        return f"{found[1]}_[{found[2]}]"
    if found := re.fullmatch(r"0[fF]([0-9A-Fa-f]{8})", operand):
        return f"0x{found[1]}u"
    if re.fullmatch(r"-?\d+|0x[0-9A-Fa-f]+", operand):
        return f"{operand}ll"
    if re.fullmatch(r"__local_depot\d+", operand):
        return f"(u64){operand}"
    raise Unknown(f"operand {operand!r}")


def as_type(kind: str, operand: str) -> str:
    # A constant of a smaller type keeps its lower bits, as a register does.
    return f"bits<{kind}>({value(operand)})"


def set_to(target: str, kind: str, code: str) -> str:
    width = "u64" if kind.endswith("64") else "u32"
    return f"{value(target)} = bits<{width}>(({kind})({code}));"


def memory(operand: str, kind: str) -> str:
    address, _, offset = operand.strip("[]").partition("+")
    return f"(({kind}*)({value(address)} + {offset or 0}))"


def instruction(opcode: str, given: list[str]) -> str:
    """C++ of an instruction."""
    if opcode == "ret":
        return "return;"
    if opcode in ("bar.sync", "barrier.sync"):
        return "emulated->barrier();"
    if opcode in ("bra", "bra.uni"):
        return f"goto {label(given[0])};"
    name, _, kind = opcode.rpartition(".")
    if name == "ld.param":
        return f"{value(given[0])} = {given[1].strip('[]')};"
    if name.startswith(("ld.", "st.")):
        return moved(name, kind, given)
    if name in ("cvta.to.global", "cvta.to.local", "cvta.local", "cvta.global"):
        return f"{value(given[0])} = {value(given[1])};"
    if name == "mov":
        return copied(kind, given)
    if name in BINARY:
        return set_to(given[0], kind, f"{as_type(kind, given[1])} {BINARY[name]} {as_type(kind, given[2])}")
    if name in ("shl", "shr"):
        return set_to(given[0], kind, f"{as_type(kind, given[1])} {'<<' if name == 'shl' else '>>'} {as_type('u32', given[2])}")
    if name in ("min", "max"):
        return set_to(given[0], kind, f"{name}({as_type(kind, given[1])}, {as_type(kind, given[2])})")
    if name == "mul.wide":
        wide = f"{kind[0]}64"
        return f"{value(given[0])} = (u64)(({wide}){as_type(kind, given[1])} * ({wide}){as_type(kind, given[2])});"
    if name == "mad.lo":
        return set_to(given[0], kind, f"{as_type(kind, given[1])} * {as_type(kind, given[2])} + {as_type(kind, given[3])}")
    if name == "fma.rn":
        return set_to(given[0], kind, f"__builtin_fmaf({', '.join(as_type(kind, one) for one in given[1:])})")
    if name.startswith("setp."):
        return f"{value(given[0])} = {as_type(kind, given[1])} {COMPARED[name[5:]]} {as_type(kind, given[2])};"
    if name == "selp":
        return set_to(given[0], kind, f"{value(given[3])} ? {as_type(kind, given[1])} : {as_type(kind, given[2])}")
    raise Unknown(f"instruction {opcode!r}")


def moved(name: str, kind: str, given: list[str]) -> str:
    """C++ of a load or store of one or several values."""
    parts = name.split(".")
    if set(parts[1:]) - {"global", "local", "nc", "v2", "v4"}:
        raise Unknown(f"instruction {name}.{kind}")
    load = parts[0] == "ld"
    registers = given[0 if load else 1].strip("{}").split(",")
    where = memory(given[1 if load else 0], kind)
    assign: Callable[[int, str], str] = (lambda i, one: f"{value(one)} = {where}[{i}];") if load else (lambda i, one: f"{where}[{i}] = {as_type(kind, one)};")
    return " ".join(assign(i, one.strip()) for i, one in enumerate(registers))


def copied(kind: str, given: list[str]) -> str:
    """C++ of a copy, which may join two registers into one of twice the size, or part one."""
    to, of = given
    if of.startswith("{"):
        low, high = (value(one.strip()) for one in of.strip("{}").split(","))
        return f"{value(to)} = (u64){low} | (u64){high} << 32;"
    if to.startswith("{"):
        low, high = (value(one.strip()) for one in to.strip("{}").split(","))
        return f"{low} = (u32){value(of)}; {high} = (u32)({value(of)} >> 32);"
    return f"{value(to)} = bits<{kind}>({value(of)});"


if __name__ == "__main__":
    try:
        Path(sys.argv[2]).write_text(translated(Path(sys.argv[1]).read_text()))
    except Unknown as unknown:
        sys.exit(f"ptx.py does not know {unknown}")
