"""Examples are loaded in threads, in order, a bounded number ahead; an error or Ctrl-C stops what was not begun."""

import os
import signal
import threading
import time
from contextlib import closing

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.embed.strips import N, Pictures, Strips
from tests.optional import Image
from unspur.embed import examples as loading
from unspur.embed.embedding import BATCH, GPU_BATCH, embed
from unspur.embed.examples import TableExamples, loaded_batches, thread_count
from unspur.embed.registry import load_encoder
from unspur.exceptions import InputError


@pytest.mark.parametrize("workers", [1, 2, 5, 30])
@pytest.mark.parametrize("batch", [1, 4, 7, 100])
def test_batches_are_in_order_whichever_is_loaded_first(workers, batch):
    def load(number):
        time.sleep(0.002 * (number % 3 == 0))  # some are overtaken
        return number

    numbers = range(5, 36)
    found = list(loaded_batches(load, numbers, batch, workers))
    assert [number for some in found for number in some] == list(numbers)
    assert [len(some) for some in found[:-1]] == [batch] * (len(found) - 1)


def test_there_is_nothing_to_load():
    assert list(loaded_batches(str, [], 4, 2)) == []


@pytest.mark.parametrize(("batch", "workers", "ahead"), [(4, 2, 4), (2, 4, 8)])
def test_no_more_is_loaded_ahead_than_a_batch_or_two_examples_for_each_thread(batch, workers, ahead):
    begun = []
    with closing(loaded_batches(lambda number: begun.append(number), range(100), batch, workers)) as batches:
        for used in range(1, 4):
            next(batches)
            deadline = time.monotonic() + 10
            while len(begun) < used * batch + ahead and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(0.05)  # what else would be begun
            assert len(begun) == used * batch + ahead  # control: this many are


def test_several_examples_are_loaded_at_once():
    together = threading.Barrier(4, timeout=10)  # broken, unless four threads are here
    (found,) = loaded_batches(lambda _: together.wait() >= 0, range(4), 4, 4)
    assert found == [True] * 4


def test_an_error_comes_in_its_turn_and_ends_the_threads():
    begun, before = [], threading.active_count()

    def load(number):
        begun.append(number)
        if number in (6, 7):
            raise InputError(f"example {number}")
        return number

    batches = loaded_batches(load, range(1000), 4, 2)
    assert next(batches) == [0, 1, 2, 3]
    with pytest.raises(InputError, match="example 6"):
        next(batches)
    assert threading.active_count() == before
    assert len(begun) < 20


def test_closing_drops_what_was_not_begun():
    held, begun, before = threading.Event(), [], threading.active_count()

    def load(number):
        begun.append(number)
        return number < 4 or held.wait(10)

    batches = loaded_batches(load, range(1000), 4, 2)
    next(batches)
    threading.Timer(0.1, held.set).start()
    batches.close()
    assert len(begun) <= 6  # four, and one in each thread
    held.set()
    list(loaded_batches(load, range(20), 4, 2))  # control
    assert len(begun) >= 20
    assert threading.active_count() <= before + 1  # the timer


def test_threads_by_default(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(3)), raising=False)
    assert thread_count() == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(500)), raising=False)
    assert thread_count() == loading.MAX_THREADS
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert thread_count() == 1
    assert [thread_count(asked) for asked in (0, 1, 40)] == [1, 1, 40]


@pytest.mark.parametrize(("device", "batch"), [("cpu, float32", BATCH), ("cuda:1, bfloat16", GPU_BATCH)])
def test_a_gpu_gets_larger_batches(tmp_path, device, batch):
    pictures = Pictures(Pictures().images * 6)
    encoder = Strips(device=device)
    embed(pictures, encoder, tmp_path / "store", progress=False)
    assert encoder.calls[0] == batch
    assert sum(encoder.calls) == 6 * N


def test_rows_do_not_depend_on_threads(tmp_path):
    encoder = load_encoder("grey-50")
    stores = [
        embed(Pictures(), encoder, tmp_path / str(workers), batch=7, workers=workers, progress=False)
        for workers in (1, 6)
    ]
    assert_array_equal(stores[0].rows, encoder(Pictures().images))
    assert stores[0].digest == stores[1].digest


@pytest.fixture
def photographs(tmp_path):
    """A table of JPEG files of noise, each another."""
    rng = np.random.default_rng(0)
    for number in range(40):
        Image.fromarray(rng.integers(256, size=(60, 80, 3), dtype=np.uint8)).save(tmp_path / f"{number}.jpg")
    table = tmp_path / "pictures.csv"
    table.write_text("image,bird\n" + "".join(f"{number}.jpg,{number % 2}\n" for number in range(40)))
    return table


def test_of_broken_pictures_the_first_in_the_table_is_named(photographs, tmp_path):
    for number in (23, 22):
        path = photographs.parent / f"{number}.jpg"
        path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(InputError, match=r"22\.jpg cannot be read as an image: .*truncated"):
        embed(TableExamples.read(photographs), load_encoder("grey-50"), tmp_path / "store", batch=4, workers=6)


@pytest.fixture
def interrupts():
    """Ctrl-C raises KeyboardInterrupt, also in a program in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class InterruptedAtSecond(Strips):
    """Presses Ctrl-C at its second batch."""

    def __call__(self, examples):
        if len(self.calls) == 1:
            signal.raise_signal(signal.SIGINT)
        return super().__call__(examples)


@pytest.mark.usefixtures("interrupts")
def test_ctrl_c_stops_the_threads(tmp_path):
    class Counted(Pictures):
        begun = 0

        def __getitem__(self, index):
            self.begun += 1
            return super().__getitem__(index)

    pictures, before = Counted(), threading.active_count()
    with pytest.raises(KeyboardInterrupt) as caught:
        embed(pictures, InterruptedAtSecond(), tmp_path / "store", batch=4, workers=2, progress=False)
    assert threading.active_count() == before, caught  # which holds the frames
    assert pictures.begun < N
    embed(pictures, Strips(), tmp_path / "store", batch=4, workers=2, progress=False).verify()  # control
