"""An example of a package that adds to dflash-tuner: a workload format, an exporter and a search space."""

from importlib.resources import files

SHORT_DRAFTS = files("dflash_tuner_example") / "short_drafts.yaml"
