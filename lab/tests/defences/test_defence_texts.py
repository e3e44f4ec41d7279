from __future__ import annotations

import pytest

from anabranch.defences import (
    FAMILIES,
    Decoys,
    DefenceError,
    Front,
    Jitter,
    Maybenot,
    WtfPad,
    parse,
)

MACHINE = "02eNpjYEAHjOgCAAA0AAI="


@pytest.mark.parametrize(
    ("text", "defence"),
    [
        ("front", Front()),
        ("front:client=1700,server=2500", Front(1700, 2500)),
        (" front: w_min = 2 , w_max=3,size=600", Front(w_min=2.0, w_max=3.0, size=600)),
        ("jitter:0-50ms", Jitter("0-50ms")),
        ("decoys:20%", Decoys("20%")),
        ("decoys:budget=2.5%", Decoys("2.5%")),
        ("decoys", Decoys()),
        ("jitter:ends=client", Jitter("0-20ms", "client")),
        ("wtf-pad", WtfPad("normal_rcv")),
        ("wtf-pad:normal", WtfPad("normal")),
        ("wtf-pad:config=normal", WtfPad("normal")),
        ("maybenot:front", Maybenot("front")),
        ("maybenot:front,delay=0.05,pps=900", Maybenot("front", delay=0.05, pps=900)),
        (
            "maybenot:client=netflow;interspace_client,server=",
            Maybenot(client=("netflow", "interspace_client"), server=()),
        ),
        (f"maybenot:{MACHINE}", Maybenot(client=(MACHINE,), server=(MACHINE,))),
        (
            f"maybenot: {MACHINE} ,server=,pps=9",
            Maybenot("none", (MACHINE,), (), pps=9),
        ),
        (f"maybenot:machines={MACHINE}", Maybenot("none", (MACHINE,), (MACHINE,))),
        (f"maybenot:{MACHINE};{MACHINE}", Maybenot("none", (MACHINE,) * 2, (MACHINE,) * 2)),
        ("maybenot:server=02eNpjYEAHjOgCAAA0AAI=", Maybenot(server=("02eNpjYEAHjOgCAAA0AAI=",))),
    ],
)
def test_texts(text: str, defence: object) -> None:
    assert parse(text) == defence


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the defence '' is unknown; expected one of front"),
        ("fronts", "the defence 'fronts' is unknown"),
        ("front:1700", "front has no setting '1700'; expected front"),
        ("front:budget=5", "no setting 'budget'"),
        ("front:client=many", "'many' is not a valid value of client"),
        ("front:client=", "'' is not a valid value of client"),
        ("front:client=1.5", "'1.5' is not a valid value"),
        ("front:client=1,client=2", "client is given twice"),
        ("front:w_max=nan", "w_max=nan"),
        ("wtf-pad:heavy", "config=heavy is unknown; expected one of"),
        ("jitter:20ms", "'20ms' delays all datagrams equally"),
        ("decoys:0%", "'0%' allows no decoys"),
        ("decoys:-3%", "'-3%' allows no decoys"),
        ("decoys:101%", "100% at most"),
        ("decoys:10", "is not a limit for decoy traffic"),
        ("jitter:ends=server", "ends=server is unknown"),
        ("maybenot:daita", "machines=daita is unknown"),
        ("maybenot:clinet=02eN=", "no setting 'clinet'"),
        ("maybenot:02eN=", "machine '02eN=': invalid machine"),
        ("maybenot:client=__import__('os')", "machine '__import__"),
    ],
)
def test_texts_that_say_nothing(text: str, problem: str) -> None:
    with pytest.raises(DefenceError) as error:
        parse(text)
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_every_family_is_told() -> None:
    for name, family in FAMILIES.items():
        assert family.syntax.startswith(name)
        assert family.about
        assert "size" in family.settings or name in ("jitter", "decoys")  # nothing of a size
