"""PU learning: a benchmark of algorithms that learn from positive and unlabeled data, two settings, fair selection.

Paper: "Accessible, Realistic, and Fair Evaluation of Positive-Unlabeled Learning Algorithms", Wei Wang, Dong-Dong Wu,
Ming Li, Jingxiong Zhang, Gang Niu, Masashi Sugiyama, ICLR 2026, arXiv 2509.24228. A validation set with negatives is
not to be had in PU learning, so models are chosen by proxy accuracy or proxy AUC. And labels come about in two ways: in
the two-sample setting U follows the population, in the one-sample setting U is what labelling left over. Most losses
are made for the former and biased in the latter, until labelled rows are put back into their unlabeled term.

What is here:
    `PULearner`: a scikit-learn classifier with algorithms "upu", "nnpu", "nnpu_ga", "pusb", "pubn", "vpu", "cvir",
        "dist_pu", "count", "glws", "lbe", "pue", "holistic_pu", "pulda", "pan", "p3mix_e", "p3mix_c", "robust_pu" and
        the baseline "naive"; `fit_together` trains many seeds side by side.
    `upu`, `nnpu`, ... `lbe`, `pue`, ... `robust_pu`: the losses as pure functions, with what they need, such as
        `trend_score`, `fisher_break`, `inverse_propensity_weights`, `self_paced_weights`; `calibrated` makes one
        right for one-sample data.
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
    The official code and notes that quote the paper were at hand, the paper's text was not. The paper's own
    scale is not here: of its data sets Letter is at hand, the images and their ResNet are not. PUbN, LBE and the staged
    algorithms, "pue" to "robust_pu", are here and in no claim. Of the staged ones' own papers only abstracts and, for
    HolisticPU, PULDA and Robust-PU, authors' code were at hand. Stages are shares of `max_steps`; schedules of learning
    rates, weight decay and augmentation of tables are left out, as all algorithms share one optimizer.
    Calibration weighs labelled rows exactly as Eq. 8 does. The release appends a P batch to an equal U batch, which is
    biased unless c pi = 1/2: ``calibration="batch_concat"``. Losses that count or sort rows (CVIR, CountLoss, GLWS) get
    labelled rows back as rows. Which algorithms the paper calibrates is not confirmed; here all can be but LBE and
    those that use no prior and treat U as negative: HolisticPU, PAN, P3MIX-E, P3MIX-C. Robust-PU's warm-up can.
    Not copied from the release: VPU's regulariser there compares log y_mix with a logit (here: with log phi); its count
    recursion wraps around at index -1; PUbN there assumes pi = 0.5 and subtracts its last term (here: any pi, added, as
    PUbN's own paper derives it), takes s from the net in training (here: from a first one) and averages over the rows
    that each term selects (here: over all); its nnPU-GA looks at the sign of the whole uPU loss (here: of the negative
    part); PUSB's quantile runs over P and U in both settings (here: over U in the two-sample setting, where U alone is
    the population, and at every checkpoint); LBE's E-step waits for the end of an epoch (here: every step).
    The same of the staged algorithms: PUe normalises its weights within a batch, and its penalty is a sum over the
    batch (here: over all P, and a mean); Robust-PU's hardness of U is that of a positive (here: of a negative, as in
    its authors' code); HolisticPU takes the averaged net (here: the net, as its authors do). Other defaults than the
    release's, because theirs do not train a plain net at pi = 0.5: PULDA's temperature and margin, the start of
    P3MIX-E's regularisation.
    The classes' docstrings say why.
    Not confirmed: Dist-PU's entropy weight, 0.004 (1 - cos(pi t / 2)) here, and the rows of its mixup, P and U here.
    Defaults are for tables: 2,000 steps at learning rate 0.01, not 20,000 at 0.001; warm-up is a tenth of the steps.
    Batches are passes over P and over U in random order. `make_pu` in the two-sample setting draws P and U from one
    pool independently, so a row can come into both; the release takes P from the rows that U has left, for which the
    study's pools are too small. Two-sample arms thus see fewer different rows, the more so the more are labelled.
    The study takes one learning rate for each arm, chosen in pilots on true labels; the paper draws ten to twenty and
    lets the criterion choose. The naive classifier with balanced batches is no straw man: where pi = 0.5 its threshold
    is the right one in both settings, and in the pilots it was as good as calibrated algorithms.
"""

from paperworks._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
