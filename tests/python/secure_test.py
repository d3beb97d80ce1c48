"""TLS, client certificates and tokens, against a real planner."""

import subprocess
import time

import pytest
from conftest import CLUSTER, example, first, run_moeplan

import moeplan

NEW_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"


@pytest.fixture(scope="session")
def pem(tmp_path_factory):
    """A folder with two authorities, and a certificate of the first for a planner and for a client."""
    folder = tmp_path_factory.mktemp("pem")

    def openssl(command):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)

    for authority in ("ca", "other"):
        openssl(f"req -x509 {NEW_KEY} -days 2 -subj /CN={authority} -keyout {authority}.key -out {authority}.crt")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name in ("planner", "client"):
        openssl(f"req {NEW_KEY} -subj /CN={name} -keyout {name}.key -out {name}.csr")
        openssl(
            f"x509 -req -days 2 -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -extfile names -out {name}.crt"
        )
    return folder


def test_over_tls_only_the_right_authority_is_believed(serve, pem, workload):
    server = serve("--tls-cert", pem / "planner.crt", "--tls-key", pem / "planner.key", profile=False)
    with moeplan.Planner(server.address, tls_ca=pem / "ca.crt", deadline_s=10) as planner:
        assert planner.plan(workload, example("profile-8x8.json")).origin == "PLANNER"
    for options in ({"tls_ca": pem / "other.crt"}, {}):
        with moeplan.Planner(server.address, **options) as planner, pytest.raises(moeplan.PlannerError) as refused:
            planner.named()
        assert refused.value.code == "UNAVAILABLE"


def test_a_planner_that_wants_a_certificate_gets_one(serve, pem):
    asked = ("--tls-cert", pem / "planner.crt", "--tls-key", pem / "planner.key", "--tls-client-ca", pem / "ca.crt")
    server = serve(*asked, profile=False)
    own = {"tls_cert": str(pem / "client.crt"), "tls_key": str(pem / "client.key")}
    with moeplan.Planner(server.address, tls_ca=str(pem / "ca.crt"), deadline_s=10, **own) as planner:
        assert planner.named()["models"]
    with moeplan.Planner(server.address, tls_ca=pem / "ca.crt") as planner, pytest.raises(moeplan.PlannerError):
        planner.named()


def _refusal(server, token):
    with moeplan.Planner(server.address, token=token, deadline_s=10) as planner:
        try:
            planner.plan(example("mixtral-across-nodes.json"))
        except moeplan.PlannerError as refused:
            return refused.reason
    return None


def _until(holds, limit_s=20.0):
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, f"not within {limit_s} s"
        time.sleep(0.01)


@pytest.fixture
def guarded(serve, tmp_path):
    """A planner that asks for tokens; with one for reading, and one for planning."""
    server = serve()
    tokens = {}
    for role in ("read", "plan"):
        made = run_moeplan("token", "create", "--db", tmp_path / "m.db", "--name", role, "--role", role)
        tokens[role] = made.stdout.strip().splitlines()[-1]
    # A token counts within a tenth of a second. Until the first does, everybody may do everything.
    _until(lambda: _refusal(server, "") == "NO_TOKEN")
    _until(lambda: _refusal(server, tokens["plan"]) is None)
    return server, tokens


def test_a_token_opens_what_its_role_may(guarded, workload, tmp_path):
    server, tokens = guarded
    with moeplan.Planner(server.address, token=tokens["plan"], deadline_s=10) as planner:
        answer = planner.plan(workload)
        with pytest.raises(moeplan.PlannerError) as too_low:
            planner.report_run({"plan": answer.response, "ranks": []})
        assert (too_low.value.code, too_low.value.reason) == ("PERMISSION_DENIED", "ROLE_TOO_LOW")
    for token, reason in ((None, "NO_TOKEN"), ("moeplan_wrong", "UNKNOWN_TOKEN")):
        with moeplan.Planner(server.address, token=token) as planner, pytest.raises(moeplan.PlannerError) as refused:
            planner.plan(workload)
        assert (refused.value.code, refused.value.reason) == ("UNAUTHENTICATED", reason)
    with moeplan.Planner(server.address, token=tokens["read"], cluster=CLUSTER, cache_dir=tmp_path / "kept") as planner:
        refused = planner.plan(workload)
        assert refused.origin == "BASELINE" and "needs the role plan" in refused.why
        with pytest.raises(moeplan.PlannerError) as no_watch:
            first(planner.watch(answer))
        assert no_watch.value.code == "PERMISSION_DENIED"


def test_the_environment_may_bring_the_token(guarded, monkeypatch):
    server, tokens = guarded
    monkeypatch.setenv("MOEPLAN_TOKEN", tokens["read"])
    with moeplan.Planner(server.address, deadline_s=10) as planner:
        assert planner.named()["models"]
    with moeplan.Planner(server.address, token="") as planner, pytest.raises(moeplan.PlannerError):
        planner.named()


def test_a_token_goes_to_no_other_machine_in_the_clear():
    with moeplan.Planner("192.0.2.1:7070", token="secret") as planner, pytest.raises(moeplan.InvalidInput) as refused:
        planner.named()
    assert refused.value.field == "token" and "tls_ca" in refused.value.expected
