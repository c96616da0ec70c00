"""Every exporter keeps the contract, and what it writes is accepted by its format's own schema or tool."""

from __future__ import annotations

import functools
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from referencing import Registry, Resource

from tuner.exporters import EXPORTERS, Exporter
from tuner.exporters._deployment import directory_name
from tuner.exporters.testing import ExporterContract, answer, provenance, samples, serve_config
from tuner.records import Recommendation

SCHEMAS = Path(__file__).parents[1] / "data" / "schemas"
KINDS = {"Deployment": "apps.v1", "Service": "core.v1", "PersistentVolumeClaim": "core.v1"}
REGISTRY: Registry[Any] = Registry().with_resource(
    "kubernetes.json", Resource.from_contents(json.loads((SCHEMAS / "kubernetes.json").read_text(encoding="utf-8")))
)
Started = tuple[Sequence[str], Mapping[str, str]]


def loaded(text: str) -> Any:
    """The one document of a file."""
    (document,) = all_loaded(text)
    return document


def all_loaded(text: str) -> list[Any]:
    """All documents of a file, by libyaml where PyYAML has it: ten times as fast."""
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def problems(document: Any, schema: str, pointer: str = "") -> list[str]:
    """What a schema of the folder says against a document."""
    return [f"{error.json_path}: {error.message[:200]}" for error in validator(schema, pointer).iter_errors(document)]


@functools.cache
def validator(schema: str, pointer: str) -> Draft7Validator:
    """Made once: resolving references costs more than validating."""
    root = json.loads((SCHEMAS / schema).read_text(encoding="utf-8"))
    return Draft7Validator({"$ref": f"kubernetes.json#/$defs/{pointer}"} if pointer else root, registry=REGISTRY)


def in_kubernetes(text: str, variables: Mapping[str, str] | None = None) -> str:
    """`$(NAME)` expanded, `$$` a `$`: k8s.io/kubernetes/third_party/forked/golang/expansion."""
    known = variables or {}

    def one(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return known.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)


def container_starts(container: Mapping[str, Any], command: Sequence[str] = ("vllm", "serve")) -> Started:
    """What Kubernetes starts in a container."""
    variables = {one["name"]: in_kubernetes(one["value"]) for one in container.get("env", ()) if "value" in one}
    words = [*container["command"], *(in_kubernetes(word, variables) for word in container["args"])]
    assert words[: len(command)] == list(command)
    return words[len(command) :], variables


def in_go_template(text: str) -> str:
    """A Go template whose only actions are raw strings; any other action fails."""
    return re.sub(r"\{\{`(.*?)`\}\}|\{\{.*", lambda m: _action(m[1]), text, flags=re.DOTALL)


def _action(raw: str | None) -> str:
    assert raw is not None, "an action that is no raw string"
    return raw


class OwnContract(ExporterContract):
    """Ours, by name; also: the schema takes every sample, and any text goes through."""

    def __init_subclass__(cls, name: str, **_: object) -> None:
        cls.exporter = EXPORTERS[name]

    def invalid(self, text: str) -> list[str]:
        """What the format's schema says against it."""
        raise NotImplementedError

    def test_its_schema_takes_every_sample(self) -> None:
        for sample, made in samples().items():
            assert self.invalid(self.exporter.export(made, provenance())) == [], sample
        assert self.invalid(self.exporter.export(samples()["plain"], provenance(gpus=()))) == []

    def test_its_schema_refuses_a_broken_one(self) -> None:
        broken = self.broken(self.exporter.export(samples()["plain"], provenance()))
        assert self.invalid(broken) != []

    def broken(self, text: str) -> str:
        """The same with a field that nobody knows."""
        documents = all_loaded(text)
        documents[-1]["unknown"] = 1
        return yaml.safe_dump_all(documents)


class TestCompose(OwnContract, name="compose"):
    """Of `tuner/exporters/compose.py`."""

    def started(self, text: str) -> Started:
        service = loaded(text)["services"]["vllm"]
        assert service["entrypoint"] == ["vllm", "serve"]
        assert not re.search(r"(?<!\$)(\$\$)*\$(?!\$)", " ".join(service["command"]))
        environment = {name: value.replace("$$", "$") for name, value in service["environment"].items()}
        return [word.replace("$$", "$") for word in service["command"]], environment

    def invalid(self, text: str) -> list[str]:
        return problems(loaded(text), "compose.json")

    @pytest.mark.slow
    @pytest.mark.skipif(
        not (shutil.which("docker-compose") or shutil.which("docker")),
        reason="no compose here (apt install docker-compose)",
    )
    def test_compose_itself_reads_it_back(self, tmp_path: Path) -> None:
        program = compose_command()
        for sample in ("two GPUs", "hostile"):
            made = samples()[sample]
            path = tmp_path / "compose.yaml"
            path.write_text(self.exporter.export(made, provenance()), encoding="utf-8")
            done = subprocess.run(
                [*program, "-f", str(path), "config"], capture_output=True, text=True, check=False, timeout=60
            )
            assert done.returncode == 0, (sample, done.stderr)
            words = [word.replace("$$", "$") for word in loaded(done.stdout)["services"]["vllm"]["command"]]
            asked = made.serve_config.to_argv()
            assert tuple(words)[: len(asked)] == asked, sample


def compose_command() -> list[str]:
    """`docker compose` where it is installed, else the older `docker-compose`."""
    plugin = ["docker", "compose"]
    if shutil.which("docker") and not subprocess.run([*plugin, "version"], capture_output=True, check=False).returncode:
        return plugin
    if not shutil.which("docker-compose"):
        pytest.skip("docker has no compose plugin here (apt install docker-compose)")
    return ["docker-compose"]


class TestKubernetes(OwnContract, name="kubernetes"):
    """Of `tuner/exporters/kubernetes.py`."""

    def started(self, text: str) -> Started:
        claim, deployed, service = all_loaded(text)
        pod = deployed["spec"]["template"]
        (container,) = pod["spec"]["containers"]
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        assert deployed["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        assert service["spec"]["ports"][0]["targetPort"] in {port["name"] for port in container["ports"]}
        claimed = {v["persistentVolumeClaim"]["claimName"] for v in pod["spec"]["volumes"] if "emptyDir" not in v}
        assert claim["metadata"]["name"] in claimed
        assert {mount["name"] for mount in container["volumeMounts"]} == {v["name"] for v in pod["spec"]["volumes"]}
        return container_starts(container)

    def invalid(self, text: str) -> list[str]:
        return [
            problem
            for one in all_loaded(text)
            for problem in problems(one, "kubernetes.json", f"io.k8s.api.{KINDS[one['kind']]}.{one['kind']}")
        ]

    def test_gpus_are_those_of_the_parallel_sizes(self) -> None:
        text = self.exporter.export(samples()["two GPUs"], provenance())
        _, deployed, _ = all_loaded(text)
        (container,) = deployed["spec"]["template"]["spec"]["containers"]
        assert container["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
        assert container["image"] == "vllm/vllm-openai:v0.32.0"


class TestKServe(OwnContract, name="kserve"):
    """Of `tuner/exporters/kserve.py`."""

    def started(self, text: str) -> Started:
        (container,) = loaded(text)["spec"]["predictor"]["containers"]
        assert container["name"] == "kserve-container"
        return container_starts(container)

    def invalid(self, text: str) -> list[str]:
        return problems(loaded(text), "kserve_inference_service.json")


class TestKServeLLM(OwnContract, name="kserve-llm"):
    """Of `tuner/exporters/kserve.py`: started by a shell that KServe's template brings."""

    def started(self, text: str) -> Started:
        spec = loaded(text)["spec"]
        (container,) = spec["template"]["containers"]
        said = {one["name"]: in_go_template(one["value"]) for one in container["env"] if "value" in one}
        variables = {name: in_kubernetes(value) for name, value in said.items()}
        # The same `eval` as in KServe's config-llm-template.yaml, with a program that prints its words.
        done = subprocess.run(
            ["/bin/bash", "-c", r'eval "printf %s\\\\0 ${VLLM_ADDITIONAL_ARGS}"'],
            env={"VLLM_ADDITIONAL_ARGS": variables["VLLM_ADDITIONAL_ARGS"]},
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        words = done.stdout.decode().split("\0")[:-1]
        scheme, _, place = in_go_template(spec["model"]["uri"]).partition("://")
        model = in_go_template(spec["model"]["name"])
        if scheme == "pvc":
            models = [made.serve_config.model for made in samples().values()]
            on_volume = {directory_name(path): path for path in models if path.startswith("/")}
            model = on_volume[place.removeprefix("models/")]
        return [model, *words], variables

    def invalid(self, text: str) -> list[str]:
        return problems(loaded(text), "kserve_llm_inference_service.json")


class TestProductionStack(OwnContract, name="production-stack"):
    """Of `tuner/exporters/production_stack.py`, read as the chart's deployment-vllm-multi.yaml reads it."""

    def started(self, text: str) -> Started:
        (model,) = loaded(text)["servingEngineSpec"]["modelSpec"]
        args = model["vllmConfig"]["extraArgs"]
        assert all(isinstance(word, str) for word in args)
        if "--no-enable-prefix-caching" not in args:
            assert model["vllmConfig"]["enablePrefixCaching"] is True
        variables = {one["name"]: in_kubernetes(one["value"]) for one in model["env"]}
        return [in_kubernetes(word, variables) for word in [model["modelURL"], *args]], variables

    def invalid(self, text: str) -> list[str]:
        return problems(loaded(text), "production_stack_values.json")

    def broken(self, text: str) -> str:
        values = loaded(text)
        values["servingEngineSpec"]["modelSpec"][0]["replicaCount"] = "one"
        return yaml.safe_dump(values)


class TestLlmD(OwnContract, name="llm-d"):
    """Of `tuner/exporters/llm_d.py`; the chart renders variables as templates and leaves a custom command alone."""

    def started(self, text: str) -> Started:
        (container,) = loaded(text)["decode"]["containers"]
        assert container["modelCommand"] == "custom"
        rendered = [{**one, "value": in_go_template(one["value"])} for one in container["env"]]
        return container_starts({**container, "env": rendered})

    def invalid(self, text: str) -> list[str]:
        return problems(loaded(text), "llm_d_modelservice_values.json")

    def broken(self, text: str) -> str:
        values = loaded(text)
        values["decode"]["containers"][0]["modelCommand"] = "whatever"
        values["decode"]["replicas"] = "one"
        return yaml.safe_dump(values)


class TestRayServe(OwnContract, name="ray-serve"):
    """Of `tuner/exporters/ray_serve.py`: arguments are a mapping, compared as such."""

    def started(self, text: str) -> Started:
        (application,) = loaded(text)["applications"]
        (llm,) = application["args"]["llm_configs"]
        loading = llm["model_loading_config"]
        assert loading["model_id"] == loading["model_source"]
        args = {name.replace("_", "-"): value for name, value in llm["engine_kwargs"].items()}
        read = serve_config({}, model=loading["model_source"]).model_copy(update={"fixed_args": args, "tuned_args": {}})
        return read.to_argv(), llm.get("runtime_env", {}).get("env_vars", {})

    def invalid(self, text: str) -> list[str]:
        document = loaded(text)
        configs = [llm for one in document["applications"] for llm in one["args"]["llm_configs"]]
        found = problems(document, "ray_serve_config.json")
        return [*found, *(problem for llm in configs for problem in problems(llm, "ray_llm_config.json"))]

    def broken(self, text: str) -> str:
        return text.replace("engine_kwargs", "engine_args")


class TestDynamo(OwnContract, name="dynamo"):
    """Of `tuner/exporters/dynamo.py`."""

    def started(self, text: str) -> Started:
        frontend, worker = loaded(text)["spec"]["components"]
        assert (frontend["type"], worker["type"]) == ("frontend", "worker")
        (container,) = worker["podTemplate"]["spec"]["containers"]
        return container_starts(container, ("python3", "-m", "dynamo.vllm", "--model"))

    def invalid(self, text: str) -> list[str]:
        return problems(loaded(text), "dynamo_graph_deployment.json")


class TestSystemd(OwnContract, name="systemd"):
    """Of `tuner/exporters/systemd.py`, read by the rules of systemd.syntax(7) and systemd.service(5)."""

    def started(self, text: str) -> Started:
        settings_ = [line.partition("=") for line in text.splitlines() if line[:1] not in {"#", "[", ""}]
        (command,) = [value for name, _, value in settings_ if name == "ExecStart"]
        words = [word.replace("$$", "$") for word in systemd_words(command)]
        assert words[:3] == ["/usr/bin/env", "vllm", "serve"]
        assignments = [systemd_words(value) for name, _, value in settings_ if name == "Environment"]
        variables = dict(word.split("=", 1) for assigned in assignments for word in assigned)
        return words[3:], variables

    def invalid(self, text: str) -> list[str]:
        known = {"[Unit]", "[Service]", "[Install]"}
        lines = [line for line in text.split("\n") if line and not line.startswith("#")]
        return [line for line in lines if line not in known and not re.match(r"[A-Z][A-Za-z]+=", line)]

    def broken(self, text: str) -> str:
        return text + "no setting\n"

    @pytest.mark.slow
    @pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here (apt install systemd)")
    def test_systemd_itself_reads_it(self, tmp_path: Path) -> None:
        for sample, made in samples().items():
            unit = tmp_path / "vllm.service"
            unit.write_text(self.exporter.export(made, provenance()), encoding="utf-8")
            done = subprocess.run(
                ["systemd-analyze", "verify", "--man=no", str(unit)],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            about = [line for line in done.stderr.splitlines() if "vllm.service" in line]
            assert (done.returncode, about) == (0, []), (sample, done.stderr)


def systemd_words(text: str) -> list[str]:
    """Words of a setting: C escapes and quotes undone, `%%` a `%`."""
    words: list[str] = []
    for match in re.finditer(r'"((?:[^"\\]|\\.)*)"|(\S+)', text):
        inner = match[1] if match[1] is not None else match[2]
        if match[1] is not None:
            inner = re.sub(rb"\\x([0-9a-f]{2})|\\(.)", _unescape, inner.encode()).decode()
        assert not re.search(r"(?<!%)(%%)*%(?!%)", inner), "a specifier"
        words.append(inner.replace("%%", "%"))
    return words


def _unescape(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return bytes([int(match[1], 16)])
    return {b"n": b"\n", b"t": b"\t", b"r": b"\r"}.get(match[2], match[2])


class TestYaml(OwnContract, name="yaml"):
    """Of `tuner/exporters/serve_yaml.py`; variables are a comment there."""

    takes_variables: ClassVar[bool] = False

    def started(self, text: str) -> Started:
        document = loaded(text)
        model = document.pop("model")
        args = {
            (name.removeprefix("no-") if name.startswith("no-") else name): (False if name.startswith("no-") else value)
            for name, value in document.items()
        }
        read = serve_config({}, model=model).model_copy(update={"fixed_args": args, "tuned_args": {}})
        return read.to_argv(), {}

    def invalid(self, text: str) -> list[str]:
        return [] if "unknown" not in loaded(text) else ["unknown"]


class TestShell(OwnContract, name="sh"):
    """Of `tuner/exporters/serve_sh.py`; that a shell starts it is in test_exports.py."""

    def started(self, text: str) -> Started:
        code = text[text.index("\nexport ") if "\nexport " in text else text.index("\nexec ") :]
        words = shlex.split(code.replace("\\\n", " "), posix=True)
        at = words.index("exec")
        assignments = [word for word in words[:at] if word != "export"]
        assert words[at : at + 3] == ["exec", "vllm", "serve"]
        assert words[-1] == "$@"
        return words[at + 3 : -1], dict(word.split("=", 1) for word in assignments)

    def invalid(self, text: str) -> list[str]:
        done = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True, check=False)
        return done.stderr.splitlines()

    def broken(self, text: str) -> str:
        return text + "if\n"


class TestJson(OwnContract, name="json"):
    """The recommendation itself; the provenance is in a file beside it."""

    def started(self, text: str) -> Started:
        read = Recommendation.model_validate_json(text).serve_config
        return read.to_argv(), read.env

    def invalid(self, text: str) -> list[str]:
        return [] if Recommendation.model_validate_json(text) else ["empty"]

    def test_its_schema_refuses_a_broken_one(self) -> None:
        with pytest.raises(ValueError, match="unknown"):
            Recommendation.model_validate_json(
                self.exporter.export(samples()["plain"], provenance())[:-2] + ',"unknown":1}'
            )

    def test_it_says_where_the_answer_comes_from_and_how_sure_it_is(self) -> None:
        text = self.exporter.export(samples()["plain"], provenance())
        assert Recommendation.model_validate_json(text) == samples()["plain"]


def test_every_exporter_has_a_contract_test() -> None:
    ours: set[Exporter] = {contract.exporter for contract in OwnContract.__subclasses__()}
    assert {exporter.name for exporter in ours} == set(EXPORTERS)


@pytest.mark.slow
@pytest.mark.parametrize("contract", OwnContract.__subclasses__(), ids=lambda contract: contract.exporter.name)
@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@example(model="x", value="\x85\u2028", condition="\x85")
@given(
    model=st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\t\n"), min_size=1, max_size=30),
    value=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
    condition=st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)
def test_any_text_goes_through(contract: type[OwnContract], model: str, value: str, condition: str) -> None:
    config = serve_config({"served-model-name": value}, model=f"m{model}", env={"V": value})
    text = contract.exporter.export(answer(config, condition=condition), provenance())
    reader = contract()
    words, variables = reader.started(text)
    assert tuple(words)[: len(config.to_argv())] == config.to_argv()
    assert not reader.takes_variables or variables["V"] == value
    assert reader.invalid(text) == []
