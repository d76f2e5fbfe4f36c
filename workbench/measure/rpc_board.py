"""A board that measures: TVM's RPC server, which stays when a candidate crashes.

It runs as `python -m workbench.measure.rpc_board --tracker HOST:PORT --key KEY` on the board, whose own TVM loads what is sent. Whoever reaches a server can
run any code on the board: without `--host` it listens on the loopback interface alone.

TVM 0.27's own `tvm.exec.rpc_server` ends its listening thread when a session's process ends otherwise than by itself, as a candidate's crash makes it, and no
longer answers from then on.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from workbench.measure.serving import die_with_parent
from workbench.measure.tvm_builder import without_torch

__all__ = ["serve"]


def serve(tracker: tuple[str, int], key: str, host: str = "127.0.0.1", ports: tuple[int, int] = (9090, 9200)) -> None:
    """Offer this machine to a tracker until the process ends, each session in a process of its own.

    Args:
        tracker: its address and port.
        key: what is asked for at the tracker.
        host: where to listen.
        ports: the first free one of these is listened on, the last excluded.
    """
    without_torch()
    from tvm.rpc import server

    home, serving = os.getcwd(), server._serving

    def surviving(connection: Any, *rest: Any) -> None:
        try:
            serving(connection, *rest)
        except RuntimeError as error:  # the session's process did not end by itself
            print(f"a session failed: {error}", file=sys.stderr, flush=True)
        finally:
            os.chdir(home)
            connection.close()  # else whoever asked would wait for an answer for ever

    server._serving = surviving
    state = server.PopenRPCServerState(host, *ports, tracker_addr=tracker, key=key, silent=True)
    state.thread.join()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workbench.measure.rpc_board", description="Offer this machine to an RPC tracker of TVM's.")
    parser.add_argument("--tracker", required=True, metavar="HOST:PORT")
    parser.add_argument("--key", required=True, help="what is asked for at the tracker")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: this machine alone can reach it)")
    parser.add_argument("--port", type=int, default=9090, help="the first port to try")
    parser.add_argument("--parent", type=int, help="end with the process of this number, which started it")
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    if given.parent:
        die_with_parent(given.parent)
    name, _, number = given.tracker.rpartition(":")
    serve((name, int(number)), given.key, given.host, (given.port, given.port + 110))
