"""The manifests in examples/kubernetes: each is what Kubernetes takes, field by field; of a job's pods each finds its
place with ddp-launch; and a mistake in one is found."""
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import jsonschema
    import kubernetes_validate
    import yaml
except ImportError as error:
    required = os.environ.get("DDP_REQUIRE_INTEROP") == "1"
    if required and not os.path.exists(os.path.join(sys.prefix, "no-index")):
        sys.exit(f"FAILED: {error}: tools/install-deps.sh --interop installs it")
    print(f"SKIPPED: {error}: tools/install-deps.sh --interop installs it")
    sys.exit(77)

HERE = pathlib.Path(__file__).parent
MANIFESTS = HERE.parent.parent / "examples" / "kubernetes"
VERSIONS = ("1.29", "1.34")  # the oldest that is meant, and the newest that the checker knows
JOBSET = json.loads((HERE / "jobset.schema.json").read_text())


def validate(document):
    if document["kind"] != "JobSet":
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
        return
    jsonschema.validate(document, JOBSET)
    for job in document["spec"]["replicatedJobs"]:
        spec = copy.deepcopy(job["template"]["spec"])
        validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, "spec": spec})


def job_of(documents):
    """The Job's spec, and the name of its first pod by which the others find it."""
    for document in documents:
        if document["kind"] == "Job":
            name, pod = document["metadata"]["name"], document["spec"]["template"]["spec"]
            service = next(one for one in documents if one["kind"] == "Service")
            assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
            assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
            assert pod["subdomain"] == service["metadata"]["name"]
            return document["spec"], f"{name}-0.{pod['subdomain']}"
        if document["kind"] == "JobSet":
            job, name = document["spec"]["replicatedJobs"][0], document["metadata"]["name"]
            network = document["spec"]["network"]
            assert network["enableDNSHostnames"] and network["publishNotReadyAddresses"]
            return job["template"]["spec"], f"{name}-{job['name']}-0-0.{name}"
    raise AssertionError("no job")


def check_pods(launcher, spec, head):
    """As Kubernetes would start them: each says what it took the job for."""
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    given = {entry["name"]: entry["value"] for entry in container["env"]}
    assert spec["completionMode"] == "Indexed" and pod["restartPolicy"] == "Never"
    assert given["PET_NNODES"] == str(spec["completions"]) == str(spec["parallelism"])
    assert given["PET_MASTER_ADDR"] == head
    assert given["PET_MASTER_PORT"] == str(container["ports"][0]["containerPort"])
    secret = next(one["secret"] for one in pod["volumes"] if "secret" in one)
    assert secret["defaultMode"] == 0o400
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert given["DDP_JOB_TOKEN_FILE"] == mounts["token"] + "/token" and mounts["shm"] == "/dev/shm"
    options = container["command"][1:container["command"].index("--")]
    grace = next(int(one.split("=")[1]) for one in options if one.startswith("--shutdown-timeout="))
    assert container["command"][0] == "ddp-launch" and grace < pod["terminationGracePeriodSeconds"]
    with tempfile.NamedTemporaryFile("w") as token:  # mode 0600
        token.write("0123456789abcdef" * 4)
        token.flush()
        here = {"DDP_JOB_TOKEN_FILE": token.name, "PET_NPROC_PER_NODE": "1"}  # there is no GPU
        for index in range(spec["completions"]):
            environment = {"PATH": os.environ["PATH"], **given, **here, "JOB_COMPLETION_INDEX": str(index)}
            run = subprocess.run([launcher, "--dry-run", *options, "true"], env=environment, capture_output=True,
                                 text=True, timeout=60)
            said = (f"3 hosts (PET_NNODES), this is host {index} (JOB_COMPLETION_INDEX); head {head} (PET_MASTER_ADDR), "
                    f"port 29500 (PET_MASTER_PORT)")
            assert run.returncode == 0 and said in run.stdout + run.stderr, run.stdout + run.stderr


def is_refused(documents, change):
    documents = copy.deepcopy(documents)
    change(documents)
    try:
        for document in documents:
            validate(document)
    except (jsonschema.ValidationError, kubernetes_validate.ValidationError):
        return True
    return False


def rename(mapping, name, other):
    mapping[other] = mapping.pop(name)


def main(launcher):
    files = sorted(MANIFESTS.glob("*.yaml"))
    assert len(files) == 2, files
    for file in files:
        documents = list(yaml.safe_load_all(file.read_text()))
        for document in documents:
            validate(document)
        spec, head = job_of(documents)
        check_pods(launcher, spec, head)
        assert is_refused(documents, lambda all: rename(job_of(all)[0], "completions", "completion")), file
        assert is_refused(documents, lambda all: rename(job_of(all)[0]["template"]["spec"], "restartPolicy", "restart"))
        assert is_refused(documents, lambda all: all[-1]["spec"].update(paralelism=3)), file
        print(file.name, "is what Kubernetes takes")


if __name__ == "__main__":
    main(sys.argv[1])
