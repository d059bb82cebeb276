"""A study without what tells who made it.

What identifies is taken away before a page is drawn, not looked for in finished files: there a
title of one common word could be missed in one place, or changed in a sentence that holds it.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from headbook.inputs import ending
from headbook.resources import DEMO_CAUSAL_SHA256, DEMO_SHA256
from headbook.study.manifest import Manifest
from headbook.study.sentencedata import StoredSentence
from headbook.study.study import Study
from headbook.study.summaries.sums import HeadSums

LOCAL = "a local model"
FOLDER = "sha256:"  # how revisions of models begin that came from a folder, not from the hub
KNOWN = {f"{FOLDER}{digest}" for digest in (DEMO_SHA256, DEMO_CAUSAL_SHA256)}
LINK = re.compile(r"://|www\.|@")  # web and mail addresses, and names of users


def anonymous(study: Study) -> Study:
    """The same numbers and sentences without title, notes, date, links and names of files.

    The name of a hub's model stays, since reviewers need it; that of a local folder does not.
    Sentences stay as they are, and so do their ids and columns unless they hold a link.
    """
    sentences = {index: _unlinked(s) for index, s in study.sentence_data.sentences.items()}
    heads = {stack: _unlinked_groups(sums) for stack, sums in study.corpus_sums.heads.items()}
    return replace(
        study,
        manifest=_nameless(study.manifest),
        corpus_sums=replace(study.corpus_sums, heads=heads),
        sentence_data=replace(study.sentence_data, sentences=sentences),
    )


def left(study: Study) -> Iterator[str]:
    """What `anonymous` leaves in a study and its author should judge, in words."""
    manifest = study.manifest
    yield f"the model's name, {manifest.model.name}"
    yield f"annotation: {', '.join(dict.fromkeys(manifest.annotators.values()))}"
    sentences = study.sentence_data.sentences.values()
    columns = sorted({name for sentence in sentences for name in sentence.metadata})
    yield f"the sentences and their ids{', and columns ' if columns else ''}{', '.join(columns)}"


def _nameless(manifest: Manifest) -> Manifest:
    model = manifest.model
    local = model.revision.startswith(FOLDER) and model.revision not in KNOWN
    name = LOCAL if local else model.name
    return replace(
        manifest,
        created="",
        title=f"Attention heads of {name}",
        notes="",
        options={**manifest.options, "title": None, "model": name, "tokenizer": None},
        model=replace(model, name=name),
        inputs=tuple(
            replace(file, name=f"input-{number}{ending(file.name)}")
            for number, file in enumerate(manifest.inputs, 1)
        ),
    )


def _unlinked_groups(sums: HeadSums) -> HeadSums:
    """Without groups that a link names; members of pairs that one tells apart come in order."""
    members = sums.members
    if members is not None:
        labels = {k: v for k, v in members.labels.items() if not LINK.search(" ".join((k, *v)))}
        members = replace(members, labels=labels)
    groups = tuple(g for g in sums.groups if not LINK.search(f"{g.column} {g.value}"))
    return replace(sums, groups=groups, members=members)


def _unlinked(sentence: StoredSentence) -> StoredSentence:
    return replace(
        sentence,
        id="" if LINK.search(sentence.id) else sentence.id,
        metadata={k: v for k, v in sentence.metadata.items() if not LINK.search(f"{k} {v}")},
    )
