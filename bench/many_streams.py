"""CPU per byte of our client and our exit when one circuit carries many streams.

One circuit through three of our relays carries the same number of bytes in one stream, in each
number of `--streams`, and in one stream while `--idle` others are open. CPU is that of all threads
of a process. The baseline is one stream alone: the cheaper of two measurements, first and last.
Streams are opened before the measurement. Each stream is read on a connection of its own, in
smaller pieces with a system call for each, so some difference remains.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import struct
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))

from harness.report import table
from harness.seeded import MIB
from harness.tornet import TorNetwork
from harness.torours import OurClient
from threefold import pins, three_relays

# Target: with the most streams, a byte costs at most this multiple of a byte of one stream.
MOST = 1.3
PIECE = 1 << 16
OPENING = 50  # streams that open at the same time


@dataclass(frozen=True)
class Cost:
    """CPU of client and exit in one run, in ms per MB."""

    what: str
    client: float
    exit: float


def main() -> int:
    """Prints a table and a verdict; returns 1 if the target was missed with ``--strict``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--streams", type=int, nargs="+", default=[50, 200, 500])
    parser.add_argument("--idle", type=int, default=3000, help="idle streams (3000)")
    parser.add_argument("--mib", type=int, default=128, help="MiB of each run (128)")
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    args = parser.parse_args()
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        costs = asyncio.run(measure(Path(folder), args.streams, args.idle, args.mib * MIB))
    base = Cost("", *(min(costs[0].__dict__[who], costs[-1].__dict__[who]) for who in ENDS))
    rows = [
        [cost.what, f"{cost.client:.2f}", f"{cost.client / base.client:.2f}",
         f"{cost.exit:.2f}", f"{cost.exit / base.exit:.2f}"]
        for cost in costs
    ]  # fmt: skip
    print(table(["one circuit", "client, ms/MB", "ratio", "exit, ms/MB", "ratio"], rows))
    worst = max(max(cost.client / base.client, cost.exit / base.exit) for cost in costs[1:-1])
    told = "ok" if worst <= MOST else "MISSED"
    print(f"the worst ratio to one stream: {worst:.2f} (target at most {MOST:.2f}) {told}")
    return int(args.strict and worst > MOST)


ENDS = ("client", "exit")


async def measure(folder: Path, counts: list[int], idle: int, length: int) -> list[Cost]:
    """Measures one stream, each number of `counts`, one stream with idle ones, and one again."""
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(TorNetwork(folder, relays=2, exits=1))
        ours = three_relays(stack, network, folder)
        network.start()
        options = ["--legs", "1", *pins(ours)]
        client = stack.enter_context(OurClient(network, folder / "client", *options))
        client.wait_ready()
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        pids = [client.process.pid, ours[2].process.pid]

        async def run(what: str, streams: int) -> Cost:
            opened = await open_all(client.socks, port, streams)
            with spent(pids) as cpu:
                await asyncio.gather(*(take(one, length // streams) for one in opened))
            cost = Cost(what, *(ms / (length / 1e6) for ms in cpu))
            print(f"  {what}: {cost.client:.2f}, {cost.exit:.2f}", file=sys.stderr, flush=True)
            return cost

        await take((await open_all(client.socks, port, 1))[0], length // 4)
        costs = [await run("1 stream", 1)]
        costs += [await run(f"{count} streams", count) for count in counts]
        opened = await open_all(client.socks, port, idle)
        costs.append(await run(f"1 stream beside {idle} idle ones", 1))
        for _, writer in opened:
            writer.close()
        await asyncio.sleep(2)
        return [*costs, await run("1 stream again", 1)]


@contextlib.contextmanager
def spent(pids: list[int]) -> Iterator[list[float]]:
    """Yields a list that is filled, after the block, with each process's CPU in milliseconds."""
    used: list[float] = []
    before = [cpu_ms(pid) for pid in pids]
    yield used
    used += [cpu_ms(pid) - ms for pid, ms in zip(pids, before, strict=True)]


def cpu_ms(pid: int) -> float:
    """Returns the CPU time in ms that the current threads of a process have used so far.

    The source is `schedstat`, in nanoseconds; clock ticks of `/proc/PID/stat` are too coarse.
    """
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads lengths from lines, and sends that many bytes for each."""
    with contextlib.suppress(ConnectionError):
        while line := await reader.readline():
            left, piece = int(line), os.urandom(PIECE)
            while left > 0:
                writer.write(piece[:left])
                left -= PIECE
                await writer.drain()
    writer.close()


async def take(stream: tuple[asyncio.StreamReader, asyncio.StreamWriter], length: int) -> None:
    """Requests `length` bytes, and reads them."""
    reader, writer = stream
    writer.write(f"{length}\n".encode())
    while length > 0:
        piece = await reader.read(PIECE)
        if not piece:
            raise ConnectionError("a stream ended early")
        length -= len(piece)
    writer.close()


async def open_all(
    socks: int, port: int, count: int
) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Opens `count` streams without SOCKS authentication, so that they share one circuit."""
    places = asyncio.Semaphore(OPENING)

    async def one() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with places:
            reader, writer = await asyncio.open_connection("127.0.0.1", socks)
            writer.write(b"\x05\x01\x00" + b"\x05\x01\x00\x01\x7f\x00\x00\x01" + port16(port))
            assert await reader.readexactly(2) == b"\x05\x00"
            answer = await reader.readexactly(10)
            assert answer[1] == 0, f"SOCKS code {answer[1]}"
            return reader, writer

    return list(await asyncio.gather(*(one() for _ in range(count))))


def port16(port: int) -> bytes:
    """Returns a port in SOCKS's encoding."""
    return struct.pack(">H", port)


if __name__ == "__main__":
    sys.exit(main())
