"""Families of heads: every type has one, and the families of a site count its heads once."""

from headbook.charts.theme import TYPE_COLOURS
from headbook.report.families import (
    FAMILY_OF_TYPE,
    STYLE_OF_SHARE,
    TYPE_STYLES,
    Family,
    families,
    family_names,
    family_of,
    in_page_words,
    style_of,
)
from headbook.report.head_types import (
    NO_SHARE,
    UNGROUPED_TYPES,
    HeadType,
    OffSinkType,
    TypeShares,
    head_types,
)
from headbook.report.sink import sink_tokens
from sites import Site


def test_every_type_that_is_measured_has_a_family() -> None:
    assert {*FAMILY_OF_TYPE} == {*OffSinkType} - (UNGROUPED_TYPES - {OffSinkType.NONE})
    assert {*FAMILY_OF_TYPE.values()} == {*Family}
    assert family_of(None) is None


def test_each_head_is_in_the_family_of_its_type(encoder_site: Site) -> None:
    (results,) = encoder_site.results.values()
    types = head_types(results)
    by_place = families(results)
    assert by_place
    for place, kind in types.items():
        assert by_place.get(place) == family_of(kind)


def test_the_last_family_names_the_tokens_of_the_model(
    encoder_site: Site, decoder_site: Site
) -> None:
    (encoder,) = encoder_site.results.values()
    (decoder,) = decoder_site.results.values()
    assert sink_tokens(encoder) == "[CLS] and [SEP]"
    assert sink_tokens(decoder).startswith("the first token")
    mixed = any(
        kind is not None and kind.rest is OffSinkType.MIXED for kind in head_types(encoder).values()
    )
    name = family_names(encoder)[Family.SINK]
    assert name == ("Mixed and others" if mixed else "[CLS] and [SEP] only")


def test_types_have_one_name_on_pages() -> None:
    """Names of tables have page words, and the colour of a type is that of its family."""
    names = [str(rest) for rest in FAMILY_OF_TYPE if rest]
    assert in_page_words("sink (40 %) + near-uniform") == "sink (40 %) + nearly evenly"
    for name in names:
        assert "-" not in in_page_words(name), name
    assert {*STYLE_OF_SHARE.values()} <= {*TYPE_STYLES}
    assert {style.shade for style in TYPE_STYLES.values()} - {"unmeasured"} <= {*TYPE_COLOURS}
    for rest, family in FAMILY_OF_TYPE.items():
        assert (
            style_of(HeadType(TypeShares(NO_SHARE), sink=False, some_sink=False, rest=rest))
            == f"f-{family}"
        )
