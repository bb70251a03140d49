"""ADRep (Alg. 2 of the paper): the buffer's size follows the difference of two training accuracies.

In: accuracy on the stream batch and on the replay batch of each step. Out: now and then, a new size.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class AdaptiveSize:
    """Running means since the last decision, and the rule that turns them into a size.

    >>> rule = AdaptiveSize(size=100, smallest=10, every_steps=2, epsilon=0.005)
    >>> rule.update(step=0, acc_stream=0.1, acc_replay=0.4, seen=1000)
    100
    >>> rule.update(step=1, acc_stream=0.1, acc_replay=0.4, seen=2000)
    200
    """

    size: int
    smallest: int
    every_steps: int
    epsilon: float
    acc_stream: float = 0.0
    acc_replay: float = 0.0
    num_steps: int = 0

    def update(self, *, step: int, acc_stream: float, acc_replay: float | None, seen: int) -> int:
        """Take in one step; the size to use from the next one on. A step without replay counts nowhere."""
        if acc_replay is not None:
            self.num_steps += 1
            self.acc_stream += (acc_stream - self.acc_stream) / self.num_steps
            self.acc_replay += (acc_replay - self.acc_replay) / self.num_steps
        if self.decides_after(step):
            self._decide(seen)
        return self.size

    def decides_after(self, step: int) -> bool:
        """Whether the size may change once this step is done."""
        return (step + 1) % self.every_steps == 0

    def _decide(self, seen: int) -> None:
        if self.num_steps:
            if self.acc_stream > self.acc_replay + self.epsilon:
                self._set(self.size // 2, seen)
            elif self.acc_stream < self.acc_replay - self.epsilon:
                self._set(2 * self.size, seen)
        self.acc_stream = self.acc_replay = 0.0
        self.num_steps = 0

    def _set(self, size: int, seen: int) -> None:
        """Never more than has been seen, never less than a batch."""
        self.size = max(self.smallest, min(size, seen))

    def state(self) -> dict[str, float]:
        """Everything that `load` needs."""
        return {name: getattr(self, name) for name in ("size", "acc_stream", "acc_replay", "num_steps")}

    def load(self, state: dict[str, float]) -> None:
        """Restore."""
        self.size, self.num_steps = int(state["size"]), int(state["num_steps"])
        self.acc_stream, self.acc_replay = state["acc_stream"], state["acc_replay"]
