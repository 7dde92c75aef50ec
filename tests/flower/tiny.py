"""An app that adds 1 to a model of two numbers each round: what a federation does, without data and without torch."""

SERVER = """
import json
import os
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()
ROUNDS = 3


@app.main()
def main(grid, context):
    config = context.run_config
    folder = Path(config["out"])
    path = folder / "rounds.jsonl"
    lines = [json.loads(x) for x in path.read_text().splitlines()] if config["resume"] and path.exists() else []
    nodes = json.loads(Path(config["nodes-file"]).read_text())
    if config["quorum"] > len(nodes):
        raise ValueError("quorum is above the number of nodes; lower it")
    while len(list(grid.get_node_ids())) < config["quorum"]:
        time.sleep(0.2)
    model = np.array(lines[-1]["model"] if lines else [0.0, 10.0])
    for t in range(len(lines) + 1, ROUNDS + 1):
        content = RecordDict({"arrays": ArrayRecord({"w": Array(model)})})
        waiting = set(grid.push_messages([Message(content, int(n), "train", group_id=str(t)) for n in nodes.values()]))
        until, replies = time.monotonic() + config["deadline-s"], []
        while waiting and time.monotonic() < until:
            got = list(grid.pull_messages(waiting))
            replies += got
            waiting -= {m.metadata.reply_to_message_id for m in got}
            time.sleep(0.1)
        good = [m for m in replies if not m.has_error()]
        model = np.mean([m.content["arrays"]["w"].numpy() for m in good], axis=0)
        with path.open("a") as file:
            file.write(json.dumps({"run": "tiny", "round": t, "closing": False, "model": model.tolist(),
                                   "replies": len(good), "server": os.getpid()}) + "\\n")
    print("all is done")
"""

CLIENT = """
from pathlib import Path

from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    memory = Path(context.node_config["memory-dir"])
    memory.mkdir(parents=True, exist_ok=True)
    with (memory / "seen").open("a") as file:
        file.write(f"{context.node_config['partition-id']} of {context.node_config['num-partitions']}\\n")
    model = message.content["arrays"]["w"].numpy() + 1
    return Message(RecordDict({"arrays": ArrayRecord({"w": Array(model)})}), reply_to=message)
"""
