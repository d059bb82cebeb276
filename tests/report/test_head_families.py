"""Families of heads: every type has one, and the families of a site count its heads once."""

from headbook.report.families import (
    FAMILY_OF_TYPE,
    Family,
    families,
    family_names,
    family_of,
    sink_tokens,
)
from headbook.report.head_types import UNGROUPED_TYPES, OffSinkType, head_types
from headbook.report.results import stack_results
from sites import Site


def test_every_type_that_is_measured_has_a_family() -> None:
    assert {*FAMILY_OF_TYPE} == {*OffSinkType} - (UNGROUPED_TYPES - {OffSinkType.NONE})
    assert {*FAMILY_OF_TYPE.values()} == {*Family}
    assert family_of(None) is None


def test_each_head_is_in_the_family_of_its_type(encoder_site: Site) -> None:
    (results,) = stack_results(encoder_site.study).values()
    types = head_types(results)
    by_place = families(results)
    assert by_place
    for place, kind in types.items():
        assert by_place.get(place) == family_of(kind)


def test_the_last_family_names_the_tokens_of_the_model(
    encoder_site: Site, decoder_site: Site
) -> None:
    (encoder,) = stack_results(encoder_site.study).values()
    (decoder,) = stack_results(decoder_site.study).values()
    assert sink_tokens(encoder) == "[CLS] and [SEP]"
    assert sink_tokens(decoder).startswith("the first token")
    mixed = any(
        kind is not None and kind.rest is OffSinkType.MIXED for kind in head_types(encoder).values()
    )
    name = family_names(encoder)[Family.SINK]
    assert name == ("Mixed and others" if mixed else "[CLS] and [SEP] only")
