"""Steps of a training as CUDA graphs: a whole step is launched at once instead of kernel by kernel.

A network that is trained on batches of 32 is a thousand short kernels a step, and the processor needs longer to launch
them than the GPU to run them. A graph is recorded once for each shape of a batch and runs the same kernels. Random
numbers are the same too: a graph reads the generator's seed when it is launched.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from unspur._typing import IntArray
from unspur_paper.networks.on_device import OnDevice

#: (inputs of the network, places of the examples in the labels) -> loss of the main label.
Step = Callable[[Any, Any], Any]
#: Steps that are launched before the first of them is done.
AHEAD = 3


class CapturedSteps:
    """Runs `step` on examples that are on a CUDA device; a shape that comes a second time is captured."""

    def __init__(self, step: Step, examples: OnDevice) -> None:
        self._step, self._examples = step, examples
        self._seen: set[tuple[int, ...]] = set()
        #: Shape -> graph, the places that it reads, and the loss that it writes; None if it cannot be recorded.
        self._graphs: dict[tuple[int, ...], tuple[Any, Any, Any] | None] = {}
        self._pool: Any = None
        self._launched: deque[Any] = deque()

    def __call__(self, chunk: IntArray) -> Any:
        """One step; the loss of the main label."""
        shape, rows = self._examples.shape(chunk), self._examples.rows(chunk)
        if shape not in self._seen:  # it also makes what a recording needs: the optimiser's state, plans of kernels
            self._seen.add(shape)
            return self._run(rows, shape)
        if shape not in self._graphs:
            self._graphs[shape] = self._captured(rows, shape)
        if (recorded := self._graphs[shape]) is None:
            return self._run(rows, shape)
        graph, places, loss = recorded
        places.copy_(rows)
        graph.replay()
        self._wait()
        return loss

    def _wait(self) -> None:
        """Let the GPU catch up; asleep, where a plain wait would keep a core busy that others may need."""
        import torch

        event: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record()
        self._launched.append(event)
        if len(self._launched) > AHEAD:
            self._launched.popleft().synchronize()

    def _run(self, rows: Any, shape: tuple[int, ...]) -> Any:
        return self._step(self._examples.gather(rows, shape), rows)

    def _captured(self, rows: Any, shape: tuple[int, ...]) -> tuple[Any, Any, Any] | None:
        """Record a step without running it; None, and a warning, if the network does what no graph can hold."""
        import torch

        places, graph = rows.clone(), torch.cuda.CUDAGraph()
        # One pool for all: no graph needs what another one has left behind, and they run one after the other.
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=torch.cuda.current_stream()):
                loss = self._run(places, shape)
        except RuntimeError as error:
            warnings.warn(f"Steps are launched kernel by kernel, which is slower: {error}", stacklevel=2)
            return None
        self._pool = graph.pool()
        return graph, places, loss


@contextmanager
def own_stream(device: str) -> Iterator[None]:
    """A context in which work goes to a CUDA stream of its own, as recording needs; nothing on a CPU."""
    import torch

    if not device.startswith("cuda"):
        yield
        return
    before: Any = torch.cuda.current_stream(device)
    stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(before)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        before.wait_stream(stream)
