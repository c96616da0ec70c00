"""Exports for clusters keep the contract: what Kubernetes, KServe, the charts, Ray and Dynamo would start."""

from __future__ import annotations

import subprocess

import yaml

from tests.contract.exporter_schemas import (
    OwnContract,
    Started,
    all_loaded,
    container_starts,
    in_go_template,
    in_kubernetes,
    loaded,
    problems,
)
from tuner.exporters._deployment import directory_name
from tuner.exporters.testing import provenance, samples, serve_config

KINDS = {"Deployment": "apps.v1", "Service": "core.v1", "PersistentVolumeClaim": "core.v1"}


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
