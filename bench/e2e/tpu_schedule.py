#!/usr/bin/env python3
"""What a training step takes on TPUs that are not there, by their compiler's account.

    ./dev bench tpu_schedule [--layouts dp8,fsdp8] [--kernels accum] [key=value ...]

For each layout the programs of a step are compiled ahead of time with libtpu (about a
minute each, on all cores) and three things are read from what the compiler leaves:

  time     the latency-hiding scheduler's own timeline: the cycles of each scheduled
           computation, those of a loop's body times its trips, at the clock that the dump
           states. Computations that it did not schedule count with the sum of their
           instructions' estimated cycles. `exposed` is what it calls wasted: waits for a
           transfer that nothing hides.
  memory   bytes of one device: arguments, temporaries, peak
  wire     bytes that one device sends, by ring algorithms, from the collectives of the
           compiled text times the trips of their loops

These are a model's numbers, not a clock's. `scores` is the part of the time that goes to
instructions that read or write attention scores [.., T, T]. With flash attention
(attention=auto does where it can) there are none, and the scheduler takes for the kernels
what they declare (docs/kernels.md), or with --kernel-costs none one cycle each, as it does
for kernels of engines that declare nothing.

--parse FOLDER reads an existing dump and compiles nothing. Python 3.11, standard library
only.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

VOCAB = "custom_mesh_and_rule=fsdp-vocab"
LAYOUTS = {
    "dp8": ["mesh=data=8"],
    "dp8-zero1": ["mesh=data=8", "shard_optimizer_over_data=true"],
    "fsdp8": ["mesh=fsdp=8", VOCAB],
    "fsdp8-default-rules": ["mesh=fsdp=8"],
    "hybrid": ["mesh=data=2,fsdp=4", VOCAB],
    "fsdp8-once-an-update": ["mesh=fsdp=8", VOCAB, "gather_parameters=update",
                             "reduce_gradients=fsdp=update"],
}
KERNELS = ["first", "accum", "update"]
SETTINGS = ["batch_size=8", "max_target_length=1024", "dtype=bf16", "scan_layers=true",
            "remat_policy=full"]

# Of a block of attention scores; a head's size is below it.
MIN_QUERIES = 256


# --- the schedule dump: protocol buffer text

def parse_text(lines):
    """Fields of a message as {name: [values]}; a message is a dict, anything else text."""
    root = {}
    stack = [root]
    for line in lines:
        line = line.strip()
        if line.endswith("{"):
            message = {}
            stack[-1].setdefault(line[:-1].strip(), []).append(message)
            stack.append(message)
        elif line == "}":
            stack.pop()
        elif line:
            name, _, value = line.partition(": ")
            stack[-1].setdefault(name, []).append(value)
    return root


def one(message, name, default=None):
    return message[name][0] if name in message else default


class Instruction:
    def __init__(self, message):
        self.name = one(message, "name", '""')[1:-1]
        self.opcode = one(message, "opcode", '""')[1:-1]
        self.id = int(one(message, "id", 0))
        self.operands = [int(i) for i in message.get("operand_ids", [])]
        self.called = [int(i) for i in message.get("called_computation_ids", [])]
        found = re.search(r'estimated_cycles\\":\\"?(\d+)', one(message, "backend_config", ""))
        self.cycles = int(found.group(1)) if found else 0
        self.direction = one(message, "comparison_direction", '""')[1:-1]
        self.index = int(one(message, "tuple_index", 0))
        literal = one(message, "literal", {})
        self.constant = int(one(literal, "s32s")) if "s32s" in literal else None
        self.shapes = list(shapes(one(message, "shape", {})))


def shapes(shape):
    """Dims of an array shape, or of the parts of a tuple."""
    if "dimensions" in shape:
        yield [int(d) for d in shape["dimensions"]]
    for part in shape.get("tuple_shapes", []):
        yield from shapes(part)


def stem(name):
    """The name of a computation without what later passes append."""
    return re.sub(r"(\.sunk|\.clone|\.cloned|_spmd|\.remat\d*|\.\d+$)+", "", name)


def final_cycles(text):
    """{stem of a computation: [(estimated cycles, touches scores)] of its instructions}."""
    computations, rows = {}, None
    for line in text.splitlines():
        if line.endswith("{") and (line.startswith("%") or line.startswith("ENTRY ")):
            name = line.removeprefix("ENTRY ").removeprefix("%").split(" ", 1)[0]
            rows = computations.setdefault(name, [])
        found = re.search(r'"estimated_cycles":"(\d+)"', line)
        if found and rows is not None:
            rows.append((int(found.group(1)), line))
    return computations


class Schedule:
    def __init__(self, path, score_tokens):
        with open(path) as file:
            dump = parse_text(file)
        module = one(dump, "hlo_module")
        self.score_tokens = score_tokens
        final = list(path.parent.glob("*after_codegen.txt"))
        self.final = {}
        for name, rows in final_cycles(final[0].read_text() if final else "").items():
            known = self.final.get(stem(name), [])
            if sum(r[0] for r in rows) >= sum(r[0] for r in known):
                self.final[stem(name)] = rows
        self.unknown = []
        self.names = {}
        self.instructions = {}  # of a computation, by id
        self.roots = {}
        for message in module["computations"]:
            number = int(one(message, "id"))
            self.names[number] = one(message, "name")[1:-1]
            self.roots[number] = int(one(message, "root_id"))
            instructions = [Instruction(m) for m in message.get("instructions", [])]
            self.instructions[number] = {i.id: i for i in instructions}
        entry = one(module, "entry_computation_name")[1:-1]
        self.entry = next(n for n, name in self.names.items() if name == entry)
        self.timelines = {}
        self.clock = None
        for message in dump.get("computation_schedules", []):
            self.timelines[int(one(message, "computation_id"))] = message
            self.clock = float(one(message, "cycles_per_microsecond"))
        if self.clock is None:
            raise SystemExit(f"error: {path} holds no schedule")
        self.known = {}

    def trips(self, around, loop):
        """Of a loop that counts up by one from a constant to a constant."""
        condition = loop.called[1]
        compare = self.instructions[condition][self.roots[condition]]
        if compare.opcode != "compare" or compare.direction != "LT":
            raise SystemExit(f"error: the trips of {loop.name} cannot be told from {compare.name}")
        counter, limit = (self.instructions[condition][i] for i in compare.operands)
        start = self.instructions[around][loop.operands[0]]
        for opcode in ("copy", "opt-barrier"):
            while start.opcode == opcode:
                start = self.instructions[around][start.operands[0]]
        start = self.instructions[around][start.operands[counter.index]]
        while start.opcode in ("copy", "bitcast"):
            start = self.instructions[around][start.operands[0]]
        if counter.opcode != "get-tuple-element" or limit.constant is None or start.constant != 0:
            raise SystemExit(f"error: the trips of {loop.name} cannot be told: from {start.name} "
                             f"to {limit.name}")
        return limit.constant

    def is_scores(self, dims):
        return (len(dims) >= 4 and max(dims) == self.score_tokens and
                sorted(dims)[-2] >= MIN_QUERIES)

    def line_has_scores(self, line):
        """Of the final text, whose operands show no shapes: results only."""
        head = line.split("(", 1)[0] if " = (" not in line else line.split("), ", 1)[0]
        return any(self.is_scores([int(d) for d in dims.split(",")])
                   for dims in re.findall(r"\[([0-9]+(?:,[0-9]+)+)\]", head)
                   ) and "dynamic-update-slice" not in line.split(" = ")[0]

    def touches_scores(self, computation, instruction):
        """Of all tokens, or of a block of queries where the compiler blocks them."""
        if "dynamic-update-slice" in instruction.name:  # stacks what a layer leaves
            return False
        operands = [self.instructions[computation].get(i) for i in instruction.operands]
        return any(self.is_scores(dims) for i in [instruction, *operands] if i for dims in i.shapes)

    def cost(self, computation):
        """(cycles, exposed cycles, cycles of attention scores) of one execution."""
        if computation in self.known:
            return self.known[computation]
        timeline = self.timelines.get(computation)
        duration = {}
        if timeline:
            statistics = one(timeline, "scheduler_statistics", {})
            own = float(one(statistics, "total_cycles", 0))
            exposed = float(one(statistics, "total_wasted_cycles", 0))
            for message in timeline.get("instructions", []):
                duration[int(one(message, "id"))] = (
                    float(one(message, "end_timestamp_cycles", 0)) -
                    float(one(message, "start_timestamp_cycles", 0)))
        else:
            own, exposed = 0.0, 0.0
        scores = 0.0
        if not timeline:
            rows = self.final.get(stem(self.names[computation]))
            if rows is None:
                self.unknown.append(self.names[computation])
            for cycles, line in rows or []:
                own += cycles
                if self.line_has_scores(line):
                    scores += cycles
        for instruction in self.instructions[computation].values():
            if instruction.opcode in ("while", "call", "conditional"):
                own -= duration.get(instruction.id, 0)
                if instruction.opcode == "while":
                    times = self.trips(computation, instruction)
                    inner = self.cost(instruction.called[0])
                else:
                    times = 1
                    inner = max(self.cost(c) for c in instruction.called)
                own += times * inner[0]
                exposed += times * inner[1]
                scores += times * inner[2]
                continue
            if timeline and instruction.opcode in ("fusion", "convolution", "dot", "custom-call", "copy"):
                cycles = duration.get(instruction.id, instruction.cycles)
                if self.touches_scores(computation, instruction):
                    scores += cycles
        self.known[computation] = (own, exposed, scores)
        return self.known[computation]

    def summary(self):
        own, exposed, scores = self.cost(self.entry)
        to_ms = 1e-3 / self.clock
        loops = []
        for computation, instructions in self.instructions.items():
            for instruction in instructions.values():
                if instruction.opcode == "while" and computation in self.known:
                    cost = self.cost(instruction.called[0])
                    trips = self.trips(computation, instruction)
                    loops.append({"loop": instruction.name, "trips": trips,
                                  "ms": trips * cost[0] * to_ms,
                                  "exposed_ms": trips * cost[1] * to_ms,
                                  "scores_ms": trips * cost[2] * to_ms})
        if self.unknown:
            print(f"warning: nothing is known of the time of {', '.join(set(self.unknown))}; "
                  "was the compilation cut short?", file=sys.stderr)
        return {"modelled_ms": own * to_ms, "exposed_ms": exposed * to_ms,
                "scores_ms": scores * to_ms, "loops": loops}

    def top(self, count):
        """The dearest instructions: (ms of all trips, computation, opcode, name, shapes)."""
        rows = []

        def visit(computation, times):
            timeline = self.timelines.get(computation)
            duration = {}
            for message in (timeline or {}).get("instructions", []):
                duration[int(one(message, "id"))] = (
                    float(one(message, "end_timestamp_cycles", 0)) -
                    float(one(message, "start_timestamp_cycles", 0)))
            for i in self.instructions[computation].values():
                if i.opcode == "while":
                    visit(i.called[0], times * self.trips(computation, i))
                elif i.opcode in ("call", "conditional"):
                    for called in i.called:
                        visit(called, times)
                else:
                    cycles = duration.get(i.id, i.cycles)
                    rows.append((times * cycles * 1e-3 / self.clock, times, i.opcode, i.name,
                                 i.shapes[:2]))
        visit(self.entry, 1)
        return sorted(rows, key=lambda r: -r[0])[:count]


def read_dump(folder, score_tokens):
    found = list(pathlib.Path(folder).glob("*.schedule.txt"))
    if len(found) != 1:
        raise SystemExit(f"error: {folder} holds {len(found)} schedules instead of one")
    return Schedule(found[0], score_tokens)


# --- running

def setting(settings, key):
    return next((s.split("=", 1)[1] for s in reversed(settings) if s.startswith(key + "=")), None)


def measure(args, layout, kernel, settings, folder):
    """Compiles one program and reads what it left."""
    environment = {**os.environ, "MW_PLUGIN_PATH": os.environ.get("MW_PLUGIN_PATH") or
                   str(ROOT / ".deps"), "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
                   "TPU_LOG_DIR": "disabled", "TF_CPP_MIN_LOG_LEVEL": "2"}
    inspect = [args.build / "meshwright", "inspect", "program", "--model", args.model,
               "--kernel", kernel, "--device", "tpu", "--kernel-costs", args.kernel_costs,
               *settings]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    program = folder / "program.mlir"
    with open(program, "w") as file:
        subprocess.run([*inspect, "--format", "stablehlo"], stdout=file, check=True,
                       env=environment)
    print(f"compiling {layout} {kernel} ...", file=sys.stderr, flush=True)
    run = subprocess.run([args.build / "bench_tpu_compile", args.topology, program, folder],
                         stdout=subprocess.PIPE, stderr=open(folder / "log.txt", "w"), text=True,
                         env=environment)
    if run.returncode != 0:
        tail = (folder / "log.txt").read_text().splitlines()[-1:]
        raise SystemExit(f"error: {layout} {kernel} did not compile: {' '.join(tail)}")
    result = json.loads(run.stdout)
    tokens = int(setting(settings, "max_target_length"))
    result.update(read_dump(folder, tokens).summary())
    result["wire_bytes"] = sum(c["bytes"] * c["trips"] for c in result["collectives"])
    (folder / "result.json").write_text(json.dumps(result, indent=1))
    return result


def table(results, micro_batches):
    gib = lambda n: f"{n / 2**30:.2f}"
    lines = ["| layout | program | modelled ms | exposed | scores | arguments GiB | temporary | "
             "peak | wire GiB |", "|---|---|---|---|---|---|---|---|---|"]
    for layout, kernels in results.items():
        for kernel, r in kernels.items():
            lines.append(f"| {layout} | {kernel} | {r['modelled_ms']:.1f} | {r['exposed_ms']:.1f} "
                         f"| {r['scores_ms']:.1f} | {gib(r['argument_bytes'])} | "
                         f"{gib(r['temp_bytes'])} | {gib(r['peak_bytes'] or 0)} | "
                         f"{gib(r['wire_bytes'])} |")
        if all(k in kernels for k in KERNELS):
            step = lambda key: (kernels["first"][key] + (micro_batches - 1) * kernels["accum"][key]
                                + kernels["update"][key])
            lines.append(f"| {layout} | **a step** | {step('modelled_ms'):.1f} | "
                         f"{step('exposed_ms'):.1f} | {step('scores_ms'):.1f} | | | | "
                         f"{gib(step('wire_bytes'))} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="random:qwen3-0.6b")
    parser.add_argument("--topology", default="tpu7x:2x2x1")
    parser.add_argument("--layouts", default=",".join(LAYOUTS),
                        help="of " + ", ".join(LAYOUTS))
    parser.add_argument("--kernels", default=",".join(KERNELS))
    parser.add_argument("--micro-batches", type=int, default=8, help="of a step")
    parser.add_argument("--kernel-costs", default="declared", choices=["declared", "none"],
                        help="whether Mosaic kernels are priced by what they declare, or at one "
                        "cycle, as those of engines that declare nothing")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bench/tpu_schedule")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--parse", type=pathlib.Path, help="a dump to read; compiles nothing")
    parser.add_argument("--score-tokens", type=int, default=1024, help="T, with --parse")
    parser.add_argument("--top", type=int, default=0,
                        help="with --parse: so many of the dearest instructions")
    parser.add_argument("settings", nargs="*", help="key=value, as of meshwright")
    args = parser.parse_args()
    if args.parse:
        schedule = read_dump(args.parse, args.score_tokens)
        print(json.dumps(schedule.summary(), indent=1))
        for ms, times, opcode, name, dims in schedule.top(args.top):
            print(f"{ms:9.3f} ms x{times:<4} {opcode:16} {name:44} {dims}")
        return
    results = {}
    for layout in args.layouts.split(","):
        if layout not in LAYOUTS:
            raise SystemExit(f"error: no layout '{layout}'; there are {', '.join(LAYOUTS)}")
        for kernel in args.kernels.split(","):
            settings = [*SETTINGS, *LAYOUTS[layout], *args.settings]
            results.setdefault(layout, {})[kernel] = measure(
                args, layout, kernel, settings, args.out / f"{layout}.{kernel}")
            (args.out / "results.json").write_text(json.dumps(results, indent=1))
    print(table(results, args.micro_batches))


if __name__ == "__main__":
    main()
