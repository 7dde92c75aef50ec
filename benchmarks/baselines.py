"""The same job written by hand: once in NumPy, once in torch as users of other frameworks write it."""

from __future__ import annotations

from typing import Any

import numpy as np
import task

Array = task.Array


class Numpy:
    """All clients stacked, forward, backward and Adam written out with reused buffers."""

    def __init__(self, shards: list[task.Shard]) -> None:
        self.x = np.concatenate([s.x for s in shards])
        self.y = np.concatenate([s.y for s in shards]).astype(np.float32)
        self.ends = np.cumsum([0] + [len(s.y) for s in shards])
        self.shards = shards
        weights = [np.where(s.y > 0, *reversed(task.class_weights(s.y))) for s in shards]
        self.weight = np.concatenate(weights).astype(np.float32)
        layers = task.initial()
        self.shapes = [s for w, b in layers for s in (w.T.shape, (1, len(b)))]
        self.model = np.concatenate([a.ravel() for w, b in layers for a in (w.T, b)])
        self.m = np.zeros((len(shards), task.PARAMETERS), np.float32)
        self.v = np.zeros_like(self.m)
        self.t = 0
        self.params, self.grads, self.scratch = (np.zeros_like(self.m) for _ in range(3))
        self.p, self.g = self.views(self.params), self.views(self.grads)
        shape = (len(shards), task.BATCH)
        self.h = [np.empty((*shape, wide), np.float32) for wide in task.WIDTHS]
        self.d = [np.empty((*shape, wide), np.float32) for wide in task.WIDTHS]

    def views(self, flat: Array) -> list[Array]:
        """Cut (K, P) into stacked layers."""
        sizes = np.cumsum([a * b for a, b in self.shapes])[:-1]
        return [p.reshape(len(flat), *s) for p, s in zip(np.split(flat, sizes, 1), self.shapes, strict=True)]

    def forward(self, h: list[Array]) -> None:
        """Fill ``h[1:]`` from ``h[0]``."""
        for i in range(len(h) - 1):
            np.matmul(h[i], self.p[2 * i], out=h[i + 1])
            h[i + 1] += self.p[2 * i + 1]
            if i < len(h) - 2:
                np.maximum(h[i + 1], 0, out=h[i + 1])

    def train(self, plan: list[Array]) -> Array:
        """Train all clients for a round; return (K, P) updates."""
        rows = np.stack(plan, 1) + self.ends[:-1, None]  # (steps, K, B)
        self.params[:] = self.model
        for at in rows:
            np.take(self.x, at, 0, out=self.h[0])
            self.forward(self.h)
            w = self.weight[at]
            p = (1 + np.tanh(self.h[-1][:, :, 0] / 2)) / 2  # the logistic function, without overflow
            self.d[-1][:, :, 0] = (p - self.y[at]) * w / w.sum(1, keepdims=True)
            for i in reversed(range(len(task.WIDTHS) - 1)):
                np.matmul(self.h[i].transpose(0, 2, 1), self.d[i + 1], out=self.g[2 * i])
                np.sum(self.d[i + 1], 1, keepdims=True, out=self.g[2 * i + 1])
                if i:
                    np.matmul(self.d[i + 1], self.p[2 * i].transpose(0, 2, 1), out=self.d[i])
                    self.d[i] *= self.h[i] > 0
            self.adam()
        return self.params - self.model

    def move(self, delta: Array) -> None:
        """Take the server's step."""
        self.model += delta

    def adam(self) -> None:
        """One step, in place."""
        self.t += 1
        b1, b2 = task.BETAS
        s = self.scratch
        self.m *= b1
        self.m += np.multiply(self.grads, 1 - b1, out=s)
        self.v *= b2
        np.multiply(self.grads, self.grads, out=s)
        s *= 1 - b2
        self.v += s
        np.divide(self.v, 1 - b2**self.t, out=s)
        np.sqrt(s, out=s)
        s += task.EPS
        np.divide(self.m, s, out=s)
        s *= task.LR / (1 - b1**self.t)
        self.params -= s

    def counts(self) -> list[Array]:
        """Count each client's trained model on all of its rows."""
        out = []
        for k, shard in enumerate(self.shards):
            h = shard.x
            for i in range(len(task.WIDTHS) - 1):
                h = h @ self.p[2 * i][k]
                h += self.p[2 * i + 1][k]
                if i < len(task.WIDTHS) - 2:
                    np.maximum(h, 0, out=h)
            out.append(task.count(shard.y, h[:, 0] > 0, shard.group))
        return out


class Torch:
    """One client after another with ``torch.optim.Adam`` and its defaults, rows picked by index."""

    def __init__(self, shards: list[task.Shard]) -> None:
        import torch
        from torch import nn

        torch.set_num_threads(1)
        self.torch = torch
        layers: list[nn.Module] = []
        for i, (weight, bias) in enumerate(task.initial()):
            linear = nn.Linear(weight.shape[1], weight.shape[0])
            with torch.no_grad():
                linear.weight.copy_(torch.from_numpy(weight))
                linear.bias.copy_(torch.from_numpy(bias))
            layers += [linear, nn.ReLU()] if i < len(task.WIDTHS) - 2 else [linear]
        self.net: Any = nn.Sequential(*layers)
        self.shards = shards
        self.data = [(torch.from_numpy(s.x), torch.from_numpy(s.y).float()) for s in shards]
        self.model = {n: t.clone() for n, t in self.net.state_dict().items()}
        self.trained: list[dict[str, Any]] = []
        self.optimisers: list[dict[str, Any] | None] = [None] * len(shards)

    def train(self, plan: list[Array]) -> Array:
        """Train the clients for a round; return (K, P) updates."""
        torch = self.torch
        self.trained = []
        for k, ((x, y), rows) in enumerate(zip(self.data, plan, strict=True)):
            self.net.load_state_dict(self.model)
            optimiser = torch.optim.Adam(self.net.parameters(), lr=task.LR)
            if (kept := self.optimisers[k]) is not None:
                optimiser.load_state_dict(kept)
            negative, positive = task.class_weights(self.shards[k].y)
            for at in torch.from_numpy(rows):
                target = y[at]
                weight = torch.where(target > 0, positive, negative)
                optimiser.zero_grad()
                logits = self.net(x[at]).squeeze(1)
                loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target, weight, reduction="sum")
                (loss / weight.sum()).backward()
                optimiser.step()
            self.optimisers[k] = optimiser.state_dict()
            self.trained.append({n: t.clone() for n, t in self.net.state_dict().items()})
        flat = [torch.cat([(t[n] - self.model[n]).ravel() for n in t]) for t in self.trained]
        return np.asarray(torch.stack(flat).numpy())

    def counts(self) -> list[Array]:
        """Count each client's trained model on all of its rows."""
        out = []
        for (x, _), shard, model in zip(self.data, self.shards, self.trained, strict=True):
            self.net.load_state_dict(model)
            with self.torch.no_grad():
                yhat = (self.net(x).squeeze(1) > 0).numpy()
            out.append(task.count(shard.y, yhat, shard.group))
        return out

    def move(self, delta: Array) -> None:
        """Take the server's step."""
        pieces = self.torch.from_numpy(delta).split([t.numel() for t in self.model.values()])
        self.model = {n: t + p.view_as(t) for (n, t), p in zip(self.model.items(), pieces, strict=True)}
