from .choosers import Item as Item
from .choosers import LikelihoodChooser as LikelihoodChooser
from .choosers import StringFrequency as StringFrequency
from .contexts import build_longseal as build_longseal
from .contexts import false_negatives as false_negatives
from .contexts import place_gold as place_gold
from .corpus import sample_corpus as sample_corpus
from .documents import Corpus as Corpus
from .documents import Document as Document
from .documents import Question as Question
from .facts import Fact as Fact
from .facts import gloss_corpus as gloss_corpus
from .facts import wordnet_facts as wordnet_facts
from .facts import world_facts as world_facts
from .fresh import fresh_prompt_text as fresh_prompt_text
from .fresh import plain_prompt_text as plain_prompt_text
from .index import NoisySearchIndex as NoisySearchIndex
from .judging import grade as grade
from .metrics import confusion as confusion
from .metrics import mcnemar as mcnemar
from .metrics import position_effect as position_effect
from .metrics import summary as summary
from .metrics import wilson as wilson
from .official import load as load
from .probe import contamination as contamination
from .readers import LeadReader as LeadReader
from .readers import OracleReader as OracleReader
from .readers import RecencyReader as RecencyReader
from .readers import Top1Reader as Top1Reader
from .readers import VoteReader as VoteReader
from .readers import extract as extract
from .scorers import accuracy as accuracy
from .scorers import attempted as attempted
from .scorers import by as by
from .scorers import f_score as f_score
from .scorers import given_attempted as given_attempted
from .scorers import rule_judge as rule_judge
from .scorers import simpleqa_judge as simpleqa_judge
from .solvers import choose_by_likelihood as choose_by_likelihood
from .solvers import fresh_prompt as fresh_prompt
from .solvers import read_documents as read_documents
from .solvers import search_tool as search_tool
from .tasks import longseal as longseal
from .tasks import longseal_sample as longseal_sample
from .tasks import seal_0 as seal_0
from .tasks import seal_hard as seal_hard
from .tasks import sealqa_sample as sealqa_sample

__all__ = [
    "Corpus",
    "Document",
    "Fact",
    "Item",
    "LeadReader",
    "LikelihoodChooser",
    "NoisySearchIndex",
    "OracleReader",
    "Question",
    "RecencyReader",
    "StringFrequency",
    "Top1Reader",
    "VoteReader",
    "accuracy",
    "attempted",
    "build_longseal",
    "by",
    "choose_by_likelihood",
    "confusion",
    "contamination",
    "extract",
    "f_score",
    "false_negatives",
    "fresh_prompt",
    "fresh_prompt_text",
    "given_attempted",
    "gloss_corpus",
    "grade",
    "load",
    "longseal",
    "longseal_sample",
    "mcnemar",
    "place_gold",
    "plain_prompt_text",
    "position_effect",
    "read_documents",
    "rule_judge",
    "sample_corpus",
    "seal_0",
    "seal_hard",
    "sealqa_sample",
    "search_tool",
    "simpleqa_judge",
    "summary",
    "wilson",
    "wordnet_facts",
    "world_facts",
]
