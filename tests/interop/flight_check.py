"""flight_check.py PREFIX: the flight records of three ranks, of which rank 1 has not come to the last call of the others."""

import pickle
import sys

dumps = []
for rank in range(3):
    with open(sys.argv[1] + str(rank), "rb") as file:
        dumps.append(pickle.load(file))

for rank, dump in enumerate(dumps):
    assert dump["version"] == "2.10" and dump["rank"] == rank, dump["version"]
    ((name, group),) = dump["pg_config"].items()
    assert group == {"name": name, "desc": "all_ranks", "ranks": "[0,1,2]"}, group
    entries = dump["entries"]
    assert [entry["record_id"] for entry in entries] == sorted(entry["record_id"] for entry in entries)
    assert {entry["process_group"][0] for entry in entries} == {name}
    assert all(isinstance(entry["collective_seq_id"], int) for entry in entries)
    assert all(entry["state"] == "completed" for entry in entries[:-1])
    assert dump["pg_status"][name]["last_enqueued_collective"] == entries[-1]["collective_seq_id"]

waits, late, _ = (dump["entries"][-1] for dump in dumps)
assert waits["state"] == "started" and late["state"] == "completed", (waits, late)
assert waits["collective_seq_id"] == late["collective_seq_id"] + 1, (waits, late)
assert waits["frames"][0]["filename"] == "drill_worker.cpp", waits
