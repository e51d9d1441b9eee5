"""SealQA: question answering when search results conflict.

Paper: "SealQA: Raising the Bar for Reasoning in Search-Augmented Language Models", Thinh Pham, Nguyen Nguyen, Pratibha
Zunjare, Weiyuan Chen, Yu-Min Tseng, Tu Vu, ICLR 2026, arXiv 2506.01062; data on the hub as vtllms/sealqa. Questions for
which a search returns conflicting, stale or useless pages: SEAL-0 (111, on which chat models scored nothing), SEAL-HARD
(254) and LongSeal (254, each with one gold document among hard negatives).

What is here:
    Inspect AI tasks `seal_0`, `seal_hard`, `longseal` on the official data, and `sealqa_sample`, `longseal_sample`
        on an invented world, offline: ``inspect eval paperworks/sealqa_sample --model paperworks/smollm2``.
    `load`: the official flavours at a pinned revision; `sample_corpus`: the invented world with controlled conflict;
        `gloss_corpus`: WordNet's glosses as pages.
    `NoisySearchIndex`: BM25, dense or hybrid search over frozen pages, with noise; usable without Inspect.
    `fresh_prompt_text`, `place_gold`, `build_longseal`, `false_negatives`: prompts and contexts.
    `grade`: the judge by rules; in Inspect the scorers `rule_judge` and `simpleqa_judge` (by a model).
    `summary`, `wilson`, `mcnemar`, `position_effect`: metrics with Wilson intervals and exact paired tests.
    `contamination`: does a model know the question's very words?

Example:
    >>> from paperworks.evaluation.sealqa import NoisySearchIndex, grade, sample_corpus
    >>> corpus = sample_corpus(seed=0, n=5, conflict=0.5)
    >>> question = corpus.questions[0]
    >>> index = NoisySearchIndex(corpus.documents)
    >>> [page.kind for page in index.search(question.question, k=2)]  # doctest: +SKIP
    ['contradicting', 'gold']
    >>> grade(question.question, question.answer, f"I think it is {question.answer}.")
    'A'
    >>> grade("When was it opened?", "3 May 2019", "May 3, 2019"), grade("Who was it?", "Lia Brandt", "I don't know")
    ('A', 'C')

Differences from the paper:
    The paper's text was read through secondary notes, and no code is public: FreshPrompt's wording, the judge's prompt
    and the instruction to answer are ours, as are all rules of `grade`. They agreed with 58 of 60 labelled cases when
    first tried, and with all 60 after two rules were mended (`judge_cases.jsonl`); of 116 further cases made to break
    them 76 were right at first, and the rules were mended again. They do not compare units of measure, read dates
    written in figures alone but for YYYY-MM-DD, or see that "A succeeded B" does not answer B. The paper's judge is a
    model.
    Official columns beyond question, answer, canary and documents are unconfirmed: what is there goes into metadata.
    The official flavours have no frozen search results, so "freshprompt" and "tool" ask for a corpus of yours
    (`NoisySearchIndex.save`), whose digest is logged. Live search engines are not wired in.
    The invented world, its readers, the selection check and everything at laptop scale are ours.
    `build_longseal` takes queries and the filter as arguments; the paper has a model write and apply them.
    F is SimpleQA's (harmonic mean of accuracy and accuracy given attempted).
    Not here: the human study, and the effort settings of vendors' reasoning models.

The authors' data: https://huggingface.co/datasets/vtllms/sealqa
"""

from paperworks._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
