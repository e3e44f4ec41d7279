#!/usr/bin/env python3
"""Demo: one session over three paths, with unmodified servers (``make demo``).

Unmodified WireGuard, QUIC and Mosh servers run at the far end of three paths. Two downloads and a
login go through ``anabranch split``. The demo checks the hashes and the screen, prints what an
observer on each path saw, and writes a report. Exit status: 0 if all checks passed, 1 if not.

The paths are emulated links of 100 Mbit/s and 10 ms one way. Without permission for network
namespaces, or with ``--loopback``, they are loopback addresses.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

INTEROP = Path(__file__).resolve().parent.parent / "tests" / "interop"
sys.dont_write_bytecode = True
sys.path.insert(0, str(INTEROP))


def enter_environment() -> None:
    """Restarts the demo in the test harness's Python environment, after installing missing
    programs.

    A program that cannot be installed is reported; the part of the demo that needs it fails.
    """
    if os.environ.get("ANABRANCH_DEMO") == "1":
        return
    subprocess.run([sys.executable, str(INTEROP / "setup"), "--area", "demo"], check=False)
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    python = str(cache / "anabranch/peers/venv/bin/python")
    if not Path(python).exists():
        sys.exit("The demo's Python environment could not be created; the reason is above.")
    os.environ["ANABRANCH_DEMO"] = "1"
    os.execv(python, [python, *sys.argv])


if __name__ == "__main__":
    enter_environment()

from harness import mosh, quic, wgnet, wireguard  # noqa: E402
from harness.net import Host  # noqa: E402
from harness.observers import joined, observers_table, seen_by_observers  # noqa: E402
from harness.seeded import MIB  # noqa: E402
from harness.stage import Stage, emulated, loopback  # noqa: E402
from harness.tools import CACHE, MissingPeer, PeerFailed, anabranch  # noqa: E402
from harness.transfer import Transfer, site  # noqa: E402

LOGIN_SECONDS = 12.0


def main() -> int:
    """Runs the three parts of the demo and prints a summary."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--loopback", action="store_true", help="emulate no network paths")
    parser.add_argument("--no-live", action="store_true", help="print lines, not the live view")
    parser.add_argument(
        "--report", type=Path, default=CACHE / "demo", help="folder for the trace and its report"
    )
    arguments = parser.parse_args()
    start = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="anabranch-demo-")))
        stage = choose_stage(arguments.loopback, stack, folder)
        stage.live = sys.stdout.isatty() and not arguments.no_live
        print(f"Paths: {stage.description}", flush=True)
        faults = {name: play(name, act, stage) for name, act in ACTS.items()}
        faults["observers"] = show_observers(stage, folder)
        faults["report"] = make_report(folder, arguments.report)
    wrong = [f"{name}: {fault}" for name, fault in faults.items() if fault]
    verdict = "FAILED:" if wrong else "All downloads have the right hash."
    print(f"\n{time.monotonic() - start:.0f} s.", verdict)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


def choose_stage(want_loopback: bool, stack: ExitStack, folder: Path) -> Stage:
    """Returns emulated paths if this machine allows them, otherwise loopback addresses."""
    if not want_loopback:
        try:
            return emulated(stack, folder)
        except (MissingPeer, PeerFailed, OSError) as error:
            print(f"Loopback addresses replace emulated paths: {str(error).splitlines()[0]}")
    return loopback(folder)


def play(name: str, act: Callable[[Stage], str], stage: Stage) -> str:
    """Runs one part of the demo; returns its fault, or an empty text."""
    print(f"\n{name} through the splitter:", flush=True)
    try:
        fault = act(stage)
    except (MissingPeer, PeerFailed, TimeoutError, subprocess.TimeoutExpired) as error:
        fault = str(error)
    if fault:
        print(f"  FAILED: {fault}")
    return fault


def play_wireguard(stage: Stage) -> str:
    """Downloads in a WireGuard tunnel: with curl, or with wgnet if TUN devices are not allowed."""
    port = stage.port(wireguard.PORT)
    if not stage.emulated:
        server = wgnet.UserSpaceTunnel(stage.server, stage.client, port)
        with server, stage.split("WireGuard", port) as listen:
            return told(server.download(listen, stage.length, 60), stage)
    with (
        stage.split("WireGuard", port) as listen,
        wireguard.Tunnel(stage.server, stage.client, listen) as tunnel,
        tunnel.server.web(site(stage.folder / "site", stage.length)),
    ):
        tunnel.ping()
        return told(tunnel.download(stage.length, 60), stage)


def play_quic(stage: Stage) -> str:
    """Downloads over HTTP/3 from quic-go's server."""
    port = stage.port(quic.PORT)
    serving = quic.serving("quic-go", stage.server, stage.folder, address=stage.address, port=port)
    with serving, stage.split("QUIC", port) as listen:
        transfer = quic.download(stage.client, "quic-go", listen, stage.length, seconds=60)
        return told(transfer, stage)


def play_mosh(stage: Stage) -> str:
    """Logs in with Mosh, types commands, and reads their output from the screen."""
    port = stage.port(mosh.PORT)
    with (
        mosh.MoshServer(stage.server, address=stage.address, port=port) as server,
        stage.split("Mosh", port) as listen,
        mosh.Login(stage.client, *_host_and_port(listen), server.key) as login,
    ):
        result = login.run_for(LOGIN_SECONDS, pause=0.2)
    print(f"  {result.commands} commands, slowest answer {1000 * result.slowest_s:.0f} ms")
    return result.fault()


def _host_and_port(listen: str) -> tuple[str, int]:
    host, port = listen.rsplit(":", 1)
    return host, int(port)


def told(transfer: Transfer, stage: Stage) -> str:
    """Prints the result of a download; returns its fault, or an empty text."""
    fault = transfer.fault(stage.length)
    if not fault:
        rate = f"{transfer.seconds:.1f} s, {transfer.goodput_mbits:.0f} Mbit/s"
        print(f"  {stage.length // MIB} MiB in {rate}, with the right SHA-256")
    return fault


def show_observers(stage: Stage, folder: Path) -> str:
    """Prints what each observer saw; returns a fault if an observer saw nothing."""
    seen: dict[str, list[dict[str, Any]]] = {
        name: seen_by_observers(folder / f"{name}.parquet")
        for name in ("WireGuard", "QUIC", "Mosh")
    }
    print("\nWhat each of the three observers saw (one observer per path, sizes of IP packets):\n")
    print(observers_table(seen, stage.path_names))
    if paths := seen["WireGuard"]:
        own, every = paths[0]["down"]["packets"], sum(path["down"]["packets"] for path in paths)
        told = f"""
WireGuard and Mosh send unencrypted packet numbers. The observer of {stage.path_names[0]} saw {own}
of WireGuard's packets down, and learns from their numbers that all paths carried {every}. With a
far end (docs/guide/far-end.md) this observer learns nothing about the other paths."""
        print(told)
    idle = [
        f"{stage.path_names[path['path']]} carried no {name} packets in one direction"
        for name, paths in seen.items()
        for path in paths
        if not (path["up"]["packets"] and path["down"]["packets"])
    ]
    few = [f"{name} used only {len(paths)} paths" for name, paths in seen.items() if len(paths) < 3]
    return "; ".join(idle + few)


def make_report(folder: Path, target: Path) -> str:
    """Writes one trace of all three parts and a report of it, and prints their paths."""
    traces = {name: folder / f"{name}.parquet" for name in ACTS}
    written = {name: trace for name, trace in traces.items() if trace.exists()}
    if not written:
        return "no part of the demo has written a trace"
    target.mkdir(parents=True, exist_ok=True)
    trace, page = target / "demo.parquet", target / "demo.html"
    joined(written, trace)
    try:
        Host("here").must([anabranch(), "report", str(trace), "--output", str(page)])
    except PeerFailed as error:
        return str(error)
    print(f"\nThis page shows the same in a browser:\n\n  {page}\n\nIts data is in {trace}.")
    return ""


ACTS: dict[str, Callable[[Stage], str]] = {
    "WireGuard": play_wireguard,
    "QUIC": play_quic,
    "Mosh": play_mosh,
}

if __name__ == "__main__":
    sys.exit(main())
