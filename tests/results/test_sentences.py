"""Sentences keep the numbers, heads and links that they are made of."""

from headbook.results.number import SHARE, Number, Printed, RowAddress
from headbook.results.sentence import Link, head_link, listed, say
from headbook.schema import HeadName

SHARE_OF_SINK = Number(0.781, SHARE, RowAddress("heads", (("layer", 4), ("head", 5))))
HEAD = HeadName("self", 4, 5)


def test_parts_keep_what_they_are() -> None:
    sentence = say(
        "{head} gives {share:whole} to {n} tokens.", head=HEAD, share=SHARE_OF_SINK, n=1204
    )
    assert sentence.parts == (
        head_link(HEAD), " gives ", Printed(SHARE_OF_SINK, "whole"), " to ", "1,204", " tokens.",
    )  # fmt: skip
    assert sentence.text == "L4·H5 gives 78\u202f% to 1,204 tokens."


def test_sentences_stand_inside_others_and_after_others() -> None:
    inner = say("{share}, in {head}", share=SHARE_OF_SINK, head=HEAD)
    assert say("The largest share is {it}.", it=inner).parts[1] == Printed(SHARE_OF_SINK)
    assert (say("One.") + say("Two.")).text == "One. Two."
    assert (say("One.") + say("")).text == "One."


def test_things_are_listed_in_words() -> None:
    heads = [HeadName("self", 0, n) for n in range(3)]
    assert listed(heads).text == "L0·H0, L0·H1 and L0·H2"
    assert listed(heads[:1]).text == "L0·H0"
    assert listed([Link("a", "a.html"), Link("b", "b.html")], " · ").text == "a · b"
