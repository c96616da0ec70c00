"""The search: what to launch next. The only package that knows Optuna.

Trial records are the truth: before each proposal the Optuna studies are made afresh from them, with a sampler seeded by
the study's seed and the number of trials, so a resumed search proposes what the undisturbed one would have. Nothing is
imported here: Optuna takes a second that only a search need pay.

    proposals.py     which condition asks, what it is offered, when the search no longer pays
    observations.py  records -> Optuna trials: parameters, values, constraints
    candidates.py    the configurations that can be proposed, and where they lie
    surrogate.py     a Gaussian process with the prediction as its prior
    sampler.py       Optuna's sampler interface around it
    names.py         parameters and constraints that are no knobs
    warm_start.py    what an earlier study on the same model suggests
"""
