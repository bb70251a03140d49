"""How the processes of one run speak with each other; alone, every call answers at once and changes nothing.

In: numbers, bytes and tensors of this rank. Out: their sums, or those of other ranks. All ranks must make the same calls in the same
order. Bookkeeping travels as bare bytes and numbers, never pickled; gradients are summed by torch's DistributedDataParallel.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket, PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from driftline.learners.ranks import Ranks
from driftline.types import DriftlineError, FloatArray, ToldElsewhereError
from driftline.version import VERSION

PATIENCE = timedelta(minutes=15)
"""So long ranks wait for each other; a rank that dies is noticed at once, this is for one that hangs."""
FAILED, FINE = b"!", b"."


class Team:
    """The ranks of a run, seen from one of them."""

    def __init__(self, ranks: Ranks, device: torch.device | None = None) -> None:
        self.ranks = ranks
        self.device = device or torch.device("cpu")
        self.gradient_bytes = 0
        """Bytes of gradients that this rank has handed to the others, counted once."""
        self._groups: dict[int, dist.ProcessGroup] = {}
        self._norm_groups: dict[int, dist.ProcessGroup] = {}
        self._open = False
        if ranks.size > 1:
            self._connect()

    @staticmethod
    def alone(num_members: int = 1) -> Team:
        """A single process.

        >>> Team.alone().sum(np.array([2.0]))
        array([2.])
        """
        return Team(Ranks.single(num_members))

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.ranks.size

    @property
    def is_first(self) -> bool:
        """Whether this rank owns the run's directory and speaks for all."""
        return self.ranks.rank == 0

    def _connect(self) -> None:
        kind = "gloo" if self.device.type == "cpu" else "cpu:gloo,cuda:nccl"
        if self.device.type == "cuda":
            if not dist.is_nccl_available():
                raise DriftlineError(
                    "several processes on GPUs need NCCL, which this torch lacks; install torch with CUDA, or use --device cpu"
                )
            torch.cuda.set_device(self.device)
        try:
            # Torchrun may keep its store when it starts everybody again: each attempt needs names of its own in it.
            store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
            attempt = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
            dist.init_process_group(kind, store=attempt, rank=rank, world_size=size, timeout=PATIENCE)
            self._open = True
            self._make_groups()
        except (RuntimeError, ValueError) as error:  # torch raises subclasses of both
            where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
            raise DriftlineError(
                f"{self.name}: the processes cannot meet at {where} ({_first_line(error)}); is the port in use? "
                "choose another with torchrun --master-port"
            ) from error

    def _make_groups(self) -> None:
        """The ranks of each member, and once more for batch norm, whose sums cross those of the gradients."""
        all_together = self.ranks.parts == self.ranks.size
        for member in range(self.ranks.num_members):
            for groups in (self._groups, self._norm_groups):
                groups[member] = (
                    groups[0]
                    if all_together and member
                    else dist.new_group(self.ranks.ranks_of(member), timeout=PATIENCE)
                )

    @property
    def name(self) -> str:
        """This rank, for messages."""
        return f"rank {self.ranks.rank} of {self.size} on {socket.gethostname()}"

    def error(self, message: str) -> DriftlineError:
        """What to raise where all ranks find the same thing wrong: one of them tells."""
        return DriftlineError(message) if self.is_first else ToldElsewhereError(message)

    # -- numbers and bytes

    def sum(self, values: FloatArray) -> FloatArray:
        """Sum over all ranks; exact for whole numbers."""
        return self.start_sum(values)()

    def start_sum(self, values: FloatArray) -> Callable[[], FloatArray]:
        """The same, begun now and waited for when the answer is called for, so that ranks can compute meanwhile."""
        if self.size == 1:
            return lambda: values
        total = torch.from_numpy(np.array(values, np.float64))
        work = dist.all_reduce(total, async_op=True)

        def finished() -> FloatArray:
            work.wait()
            return total.numpy()

        return finished

    def gather(self, data: bytes) -> list[bytes]:
        """Every rank's bytes, by rank, on the first one; nothing on the others."""
        if self.size == 1:
            return [data]
        sizes = np.zeros(self.size)
        sizes[self.ranks.rank] = len(data)
        sizes = self.sum(sizes)
        if not self.is_first:
            if data:
                dist.send(_tensor(data), 0)
            return []
        others = [self._received(int(size), rank) for rank, size in enumerate(sizes) if rank]
        return [data, *others]

    def _received(self, size: int, rank: int) -> bytes:
        received = torch.empty(size, dtype=torch.uint8)
        if size:
            dist.recv(received, rank)
        return received.numpy().tobytes()

    def from_first(self, make: Callable[[], bytes]) -> bytes:
        """What the first rank made; when it failed, all fail."""
        if self.size == 1:
            return make()
        problem: DriftlineError | None = None
        data = b""
        if self.is_first:
            try:
                data = FINE + make()
            except DriftlineError as error:
                problem, data = error, FAILED + str(error).encode()
        size = int(self.sum(np.array([float(len(data))]))[0])
        content = _tensor(data) if self.is_first else torch.empty(size, dtype=torch.uint8)
        dist.broadcast(content, 0)
        if problem is not None:
            raise problem
        data = content.numpy().tobytes()
        if data[:1] == FAILED:
            raise ToldElsewhereError(data[1:].decode())
        return data[1:]

    def same_everywhere(self, facts: dict[str, str], problem: str = "") -> None:
        """Refuse to go on when a rank has other facts than the first one, or a problem of its own."""
        mine = {"rank": self.name, "problem": problem, **facts}
        if self.size == 1:
            told = [json.dumps(mine).encode()]
        else:
            told = self.gather(json.dumps(mine).encode())

        def compare() -> bytes:
            first, *others = map(json.loads, told)
            if bad := [f"{fact['rank']}: {fact['problem']}" for fact in (first, *others) if fact["problem"]]:
                raise DriftlineError("; ".join(bad) if self.size > 1 else problem)
            for other in others:
                for what in facts:
                    if other[what] != first[what]:
                        raise DriftlineError(
                            f"{other['rank']} has another {what} ({other[what]}) than {first['rank']} ({first[what]}); all "
                            "processes of a run need the same settings, the same driftline and the same stream"
                        )
            return b""

        self.from_first(compare)

    # -- tensors

    def spread(self, tensors: Sequence[Tensor], member: int) -> None:
        """Overwrite tensors with those of the first rank of a member."""
        if self.size == 1 or len(self.ranks.members) == self.ranks.num_members:
            return
        source = self.ranks.ranks_of(member)[0]
        for tensor in tensors:
            dist.broadcast(tensor.detach(), source)

    def to_first(self, tensors: Sequence[Tensor], member: int) -> list[Tensor]:
        """Copies of a member's tensors, wherever it learns, on the first rank; nothing on the others.

        `tensors` are the member's own where it is, and of the same shapes elsewhere.
        """
        source = self.ranks.ranks_of(member)[0]
        if source == 0:
            return [tensor.detach().cpu().clone() for tensor in tensors] if self.is_first else []
        if self.ranks.rank == source:
            for tensor in tensors:
                dist.send(tensor.detach().contiguous(), 0)
        if not self.is_first:
            return []
        received = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors]
        for tensor in received:
            dist.recv(tensor, source)
        return [tensor.cpu() for tensor in received]

    def divided(self, model: nn.Module, member: int) -> nn.Module:
        """The model to train with: backward sums gradients over the member's ranks, each once, while it goes on."""
        if self.ranks.parts == 1:
            return model
        with warnings.catch_warnings():
            # torch 2.13 renames broadcast_buffers; older ones know only this name.
            warnings.simplefilter("ignore", FutureWarning)
            wrapped = DistributedDataParallel(
                model,
                process_group=self._groups[member],
                broadcast_buffers=False,
                gradient_as_bucket_view=True,
                static_graph=True,
            )
        # A lambda, because torch refuses hooks whose annotations are texts.
        wrapped.register_comm_hook(self._groups[member], lambda group, bucket: self._sum(bucket, group))
        return wrapped

    def norm_group(self, member: int) -> dist.ProcessGroup:
        """The ranks over which batch norm takes its statistics."""
        return self._norm_groups[member]

    def _sum(self, bucket: GradBucket, group: dist.ProcessGroup) -> torch.futures.Future[Tensor]:
        """Sums, where torch would average: the samples' weights already refer to the whole batch."""
        gradients = bucket.buffer()
        self.gradient_bytes += gradients.numel() * gradients.element_size()
        summing: torch.futures.Future[list[Tensor]] = dist.all_reduce(
            gradients, group=group, async_op=True
        ).get_future()
        return summing.then(_first_value)

    # -- the end

    @contextlib.contextmanager
    def explaining_lost_ranks(self, advice: str) -> Iterator[None]:
        """Turn torch's errors about lost connections into one line."""
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or not _is_about_ranks(error):
                raise
            raise DriftlineError(
                f"{self.name}: another process of this run has ended or does not answer ({_first_line(error)}); its own message "
                f"says why, nothing saved is lost; {advice}"
            ) from error

    def close(self) -> None:
        """Part from the others. Safe to repeat."""
        if self._open:
            self._open = False
            dist.destroy_process_group()


def source_hash() -> str:
    """Hash of the package's source, to find ranks that run other code.

    >>> len(source_hash())
    16
    """
    digest = hashlib.sha256(VERSION.encode())
    folder = Path(__file__).parent.parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _first_value(future: torch.futures.Future[list[Tensor]]) -> Tensor:
    return future.value()[0]


def _tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _is_about_ranks(error: RuntimeError) -> bool:
    text = str(error).lower()
    return isinstance(error, dist.DistError) or any(
        word in text for word in ("gloo", "nccl", "connection", "socket")
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
