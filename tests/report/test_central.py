"""The page of a run with noise at the server says what it promises, to whom, and where it ends."""

from __future__ import annotations

from pathlib import Path

from equipoise.report import write
from equipoise.study import execute, plan, read


def test_central_noise_is_stated_beside_its_epsilon(tmp_path: Path) -> None:
    settings = ["seeds=[42]", "rounds=2", "training.steps=2", "adversary.control=false"]
    rules = 'rule=[{name="fairis",central={clip=4.0,noise=1.0}},{name="uniform",central={clip=4.0,noise=0.0}}]'
    (noised, bare) = execute(plan(read("demo", [*settings, rules])), tmp_path / "run")
    page = write(tmp_path / "run").read_text()
    assert f"{noised['central_epsilon']:.2f}, the same for every client" in page
    assert bare["central_epsilon"] is None and "infinite: too little noise" in page
    assert "It does not protect from the server" in page and "noise multiplier 1 on their weighted sum" in page
    assert "Central epsilon" in page
