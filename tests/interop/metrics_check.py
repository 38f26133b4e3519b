"""metrics_check.py SOCKET PROMTOOL PACKAGES: what ddp-launch --metrics=unix:SOCKET serves, by Prometheus's own readers."""
import http.client
import socket
import subprocess
import sys

socket_path, promtool, packages = sys.argv[1:]
sys.path.append(packages)
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics  # noqa: E402
from prometheus_client.parser import text_string_to_metric_families as read_text  # noqa: E402


class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(30)
        self.sock.connect(socket_path)


def fetch(accept):
    connection = Connection("localhost")
    connection.request("GET", "/metrics", headers={"Accept": accept})
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    return answer.getheader("Content-Type"), answer.read().decode()


def samples(families):
    return {(s.name, s.labels.get("rank")): s.value for family in families for s in family.samples}


kind, text = fetch("text/plain")
assert kind.startswith("text/plain; version=0.0.4"), kind
check = subprocess.run([promtool, "check", "metrics"], input=text, text=True, capture_output=True)
assert check.returncode == 0 and not check.stdout and not check.stderr, (check.stdout, check.stderr)

# Prometheus asks so.
kind, openmetrics = fetch("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
assert kind.startswith("application/openmetrics-text; version=1.0.0"), kind
of_text, of_openmetrics = samples(read_text(text)), samples(read_openmetrics(openmetrics))
assert of_text.keys() == of_openmetrics.keys(), of_text.keys() ^ of_openmetrics.keys()
assert of_text[("ddp_job_world_size", None)] == 2
for rank in ("0", "1"):
    assert of_openmetrics[("ddp_rank_up", rank)] == 1
    assert of_openmetrics[("ddp_rank_collective_bytes_total", rank)] > 0
    assert of_openmetrics[("ddp_rank_step", rank)] > 0
    assert of_openmetrics[("ddp_rank_exposed_communication_seconds_total", rank)] > 0
