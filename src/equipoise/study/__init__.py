"""A study file becomes runs in a folder: the only room that knows two siblings, and that looks parts up by name."""

from .cells import member_shard
from .execute import Step, execute
from .plan import Plan, Program, plan
from .read import read, ready
from .schema import Study, check

__all__ = ["Plan", "Program", "Step", "Study", "check", "execute", "member_shard", "plan", "read", "ready"]
