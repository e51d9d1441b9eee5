"""PU learning: a benchmark of algorithms that learn from positive and unlabeled data, two settings, fair selection.

Paper: "Accessible, Realistic, and Fair Evaluation of Positive-Unlabeled Learning Algorithms", Wei Wang, Dong-Dong Wu,
Ming Li, Jingxiong Zhang, Gang Niu, Masashi Sugiyama, ICLR 2026, arXiv 2509.24228. A validation set with negatives is
not to be had in PU learning, so models are chosen by proxy accuracy or proxy AUC. And labels come about in two ways: in
the two-sample setting U follows the population, in the one-sample setting U is what labelling left over. Most losses
are made for the former and biased in the latter, until labelled rows are put back into their unlabeled term.

What is here:
    `PULearner`: a scikit-learn classifier with algorithms "upu", "nnpu", "nnpu_ga", "pusb", "pubn", "vpu", "cvir",
        "dist_pu", "count", "glws", "lbe" and the baseline "naive"; `fit_together` trains many seeds side by side.
    `upu`, `nnpu`, ... `glws`, `lbe`: the losses as pure functions; `calibrated` makes one right for one-sample data.
    `proxy_accuracy`, `proxy_auc`, `oracle_accuracy`: selection, for `make_scorer` and `GridSearchCV` too.
    `make_pu`: PU data from labelled data with exact shares; `run_benchmark`: everything against everything, one table.
    `estimate_prior`, `shift_prior`, `prior_sensitivity`: an unknown, a changed, a wrong prior.
    `Algorithm`, `ALGORITHMS`: where a further algorithm goes.

Example:
    >>> import numpy as np
    >>> from paperworks.supervision.pu_bench import PULearner, make_pu
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> X = rng.normal(size=(2000, 2)) + 2 * y[:, None]
    >>> data = make_pu(X, y, [1], prior=0.5, n_p=300, n_total=1000, setting="one-sample", rng=0)
    >>> learner = PULearner("nnpu", prior=0.5, setting="one-sample", max_steps=300, random_state=0)
    >>> bool(learner.fit(data.x, data.y).score(X, y) > 0.85)
    True

Differences from the paper:
    The official code and notes that quote the paper were at hand, the paper's text was not. Algorithms 12 to 18 of the
    benchmark (PUe, HolisticPU, PULDA, PAN, P3MIX-E, P3MIX-C, Robust-PU) are not here.
    Calibration weighs labelled rows exactly as Eq. 8 does. The release appends a P batch to an equal U batch, which is
    biased unless c pi = 1/2: ``calibration="batch_concat"``. Losses that count or sort rows (CVIR, CountLoss, GLWS) get
    labelled rows back as rows. Which algorithms the paper calibrates is not confirmed; here all can be but LBE.
    Not copied from the release: VPU's regulariser there compares log y_mix with a logit (here: with log phi); its count
    recursion wraps around at index -1; PUbN there assumes pi = 0.5 and subtracts its last term (here: any pi, added, as
    PUbN's own paper derives it); its nnPU-GA looks at the sign of the whole uPU loss (here: of the negative part).
    Not confirmed: Dist-PU's entropy weight, 0.004 (1 - cos(pi t / 2)) here, and the rows of its mixup, P and U here;
    which scores PUSB's quantile is taken over, the unlabeled training rows here (with P when calibrated); PUbN's eta.
    Defaults are for tables: 2,000 steps at learning rate 0.01, not 20,000 at 0.001; warm-up is a tenth of the steps.
    Batches are passes over P and over U in random order. `make_pu` in the two-sample setting draws P and U from one
    pool independently, so a row can come into both.
    Without a declared setting the learner warns, and fails only when asked to calibrate: scikit-learn's contract wants
    an estimator that fits with its defaults.
    The study's learning rates were chosen for each algorithm in pilots. The naive classifier with balanced batches is
    no straw man: where pi = 0.5 its threshold is the right one in both settings.
"""

from paperworks._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
