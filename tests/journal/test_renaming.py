"""Renaming: names under which the same is decided; order, numbers and the words of Kubernetes stay."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangsched.errors import InvariantError
from gangsched.journal.anonymise.renaming import Renaming
from gangsched.journal.anonymise.vocabulary import own_words
from gangsched.model.text.natural import natural

KEY = bytes(range(32))


def renaming_of(texts: Sequence[str], key: bytes = KEY) -> Renaming:
    rename = Renaming(key, own_words().words, own_words().prose)
    for text in texts:
        rename.collect(text)
    rename.settle()
    return rename


NAMES = st.lists(
    st.lists(st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=9), min_size=1, max_size=3).map(
        "-".join
    ),
    min_size=2,
    max_size=20,
    unique=True,
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(NAMES)
def test_names_keep_their_order_and_stay_apart(names: list[str]) -> None:
    ours = sorted(name for name in names if name not in own_words().words)
    rename = renaming_of(ours)
    renamed = [rename(name) for name in ours]
    assert renamed == sorted(set(renamed))
    assert not set(renamed) & set(ours)


def test_what_is_put_together_is_renamed_as_its_parts() -> None:
    nested = '{"a": ["bluewhale/narwhal-7b-0"]}'
    rename = renaming_of([nested, "Kraken"])
    whole = f"{rename('bluewhale')}/{rename('narwhal-7b')}-0"
    assert rename("bluewhale/narwhal-7b-0") == whole
    assert json.loads(rename(nested)).popitem()[1] == [whole]
    assert rename("KRAKEN") == rename("kraken").upper() == rename("Kraken").upper()


@pytest.mark.parametrize("depth", range(1, 10))
def test_json_in_json_is_renamed_however_deep_it_is(depth: int) -> None:
    """Seven deep its words were met without the backslashes between which they are replaced: a traceback."""
    text = "bluewhale\nnarwhal\tKraken\u00e9"
    for _ in range(depth):
        text = json.dumps({"a": text})
    renamed = renaming_of([text])(text)
    assert not re.search("bluewhale|narwhal|kraken", renamed, re.IGNORECASE)


def test_a_text_of_very_many_labels_is_renamed_with_known_domains_in_it() -> None:
    """As somebody's annotation: looking each run of labels up would take days."""
    text = "zorp.nvidia.com." * 8_000 + "gangsched.io"
    renamed = renaming_of([text])(text)
    [word] = set(renamed.removesuffix("gangsched.io").split(".nvidia.com.")) - {""}
    assert word != "zorp"
    assert renamed == text.replace("zorp.", f"{word}.")


def test_another_key_gives_other_names_in_the_same_order() -> None:
    names = sorted(["bluewhale", "kraken", "octopus", "seahorse"])
    one, other = renaming_of(names), renaming_of(names, b"another key of 32 bytes, or more")
    assert [one(name) for name in names] == [renaming_of(names)(name) for name in names]
    assert all(one(name) != other(name) for name in names)
    assert sorted(map(other, names)) == [other(name) for name in names]


@pytest.mark.parametrize(
    "text",
    [
        *("nvidia.com/gpu", "topology.kubernetes.io/rack", "80Gi", "2.5", "1h30m", "NoSchedule"),
        *("hugepages-2Mi", "2026-05-04T02:15:00Z", "kube-system", "", "-", "100MB/s", "NV18"),
    ],
)
def test_numbers_times_and_words_of_kubernetes_stay(text: str) -> None:
    assert renaming_of([text])(text) == text


def test_addresses_keep_their_order_as_texts() -> None:
    """Nodes, and domains, may be named by them, and ties are broken by names."""
    rng = Random(1)
    ours = sorted({f"10.{rng.randrange(9)}.{rng.randrange(256)}.{rng.randrange(256)}" for _ in range(500)})
    rename = renaming_of(ours)
    renamed = [rename(one) for one in ours]
    assert renamed == sorted(set(renamed))
    assert not set(renamed) & set(ours)
    assert rename(f"{ours[7]}:8080") == f"{renamed[7]}:8080"


def test_suffixes_that_kubernetes_makes_still_look_so() -> None:
    """By them the name of a kind of job is found."""
    texts = ["coral-6d4cf56db6-x7k2p", "coral-walrus", "coral-xyz"]
    rename = renaming_of(texts)
    first, second, third = (rename(text).split("-") for text in texts)
    suffix = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5,10}")
    assert all(suffix.fullmatch(part) for part in first[1:])
    assert not any(suffix.fullmatch(part) for part in (first[0], second[1], third[1]))


def test_what_was_not_met_does_not_go_out() -> None:
    rename = renaming_of(["bluewhale"])
    with pytest.raises(InvariantError, match="was not met before"):
        rename("octopus")
    assert rename.of_answer("octopus of bluewhale") == f"octopus of {rename('bluewhale')}"


SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


@pytest.mark.parametrize("seed", range(40))
def test_pods_of_jobs_keep_the_order_of_their_names_and_of_their_lengths(seed: int) -> None:
    """Beside completion indices, numbers of CronJobs and words: ranks go by length, then by name."""
    rng = Random(seed)
    ends = ["".join(rng.choices(SUFFIX, k=5)) for _ in range(60)]
    names = [f"train-{at % 15}-{one}" for at, one in enumerate(ends[:30])]
    names += [f"train-{one}" for one in ends[30:]]
    names += [f"train-{rng.randrange(29_000_000, 30_000_000)}-{one}" for one in ends[:3]]
    rename = renaming_of([*names, "train-llama", "train-7b", "gke-pool-9c4f2b7d-t5zr"])
    new = {name: rename(name) for name in names}
    assert sorted(names) == sorted(names, key=lambda one: new[one])
    assert sorted(names, key=lambda one: (len(one), one)) == sorted(
        names, key=lambda one: (len(new[one]), new[one])
    )
    assert len(set(new.values())) == len(names)
    secret = [one for one in ends if not one.isdigit()]
    assert not [one for one in secret if any(one in renamed for renamed in new.values())]
    assert all(re.fullmatch(rf"[{SUFFIX}]{{5}}", one.rpartition("-")[2]) for one in new.values())


def test_roles_with_short_names_keep_their_length_and_their_order() -> None:
    """Ranks go by length, then by name: ps, then chief, then worker, which is a word of Kubernetes."""
    roles = ("ps", "chief", "worker", "gpu", "cpu", "a", "eval")
    names = [f"train-{role}-{index}" for role in roles for index in range(12)]
    rename = renaming_of(
        [*names, *(f"{word}-{at}" for at, word in enumerate(("orca", "whale", "bert", "llama")))]
    )
    new = {name: rename(name) for name in names}
    assert sorted(names) == sorted(names, key=lambda one: new[one])
    assert [len(new[name]) for name in names] == [len(name) for name in names]
    secret = [role for role in roles if role not in ("worker", "a")]
    assert not [one for one in new.values() if set(one.split("-")) & set(secret)]


def test_names_of_nodes_that_only_look_like_suffixes_keep_their_order() -> None:
    names = [f"srv{number}" for number in range(1, 100)]
    rename = renaming_of(names)
    assert sorted(names) == sorted(names, key=rename)
    assert not [name for name in names if "srv" in rename(name)]


@pytest.mark.parametrize(
    "names",
    [
        [f"rack-{k}" for k in range(1, 30)],
        [f"row{row}-node{k:02}" for row in range(1, 12) for k in range(12)],
        [f"ip-10-{61 + k % 3}-{k}-{(k * 37) % 251}.ec2.internal" for k in range(90)],
        [f"{k * 0x9E3779B97F4A7C15 % 2**64:016x}" for k in range(1, 30)],
    ],
    ids=lambda names: names[0],
)
def test_the_natural_order_of_nodes_is_kept(names: list[str]) -> None:
    """Members of a gang get their places in this order."""
    rename = renaming_of(names)
    assert sorted(names, key=natural) == sorted(names, key=lambda one: natural(rename(one)))


def test_a_long_number_gets_no_zero_in_front_and_keeps_its_order() -> None:
    numbers = ["1", "10000000", "123456789", "2", "29384723", "29384724", "3", "0012345678"]
    rename = renaming_of([f"cron-{number}" for number in numbers])
    new = {number: rename(f"cron-{number}").partition("-")[2] for number in numbers}
    assert sorted(numbers) == sorted(numbers, key=lambda one: new[one])
    assert all(len(new[one]) == len(one) and (new[one][0] == "0") == (one[0] == "0") for one in numbers)
    assert all((new[one] == one) == (len(one) < 8) for one in numbers)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("seen at 10.61.62.63.", "seen at {}."),
        ("10.61.62.63.nip.io", "{}"),
        ("ip-10-61-62-63.ec2.internal", "{}"),
        ("fd00:6162:6364:3::1f", "{}"),
        ("[2001:db8:6162:6364:9abc:def0:1:2]:8080", "[{}]:8080"),
        ("::ffff:10.61.62.63", "::{}"),
        ("fe80::6162:3eff:fe63:3456/48", "{}/48"),
        ("0a:58:61:62:63:05", "{}"),
    ],
)
def test_no_part_of_an_address_stays(text: str, left: str) -> None:
    """Its numbers have few digits, and numbers of few digits stay."""
    new = renaming_of([text])(text)
    assert not re.search("6[1-4]", new)
    assert re.fullmatch(re.escape(left).replace(r"\{\}", ".+"), new)


@pytest.mark.parametrize("text", ["12:30:45", "::", "1.2.3.4.5", "0000:00:03.0"])
def test_what_only_looks_like_an_address_stays(text: str) -> None:
    assert renaming_of([text])(text) == text


def test_an_address_is_the_same_with_dots_and_with_dashes() -> None:
    """A node's name and its other annotations may have both."""
    rename = renaming_of(["ip-10-61-62-63", "10.61.62.63", "ip-10-61-62-7"])
    assert rename("ip-10-61-62-63").partition("-")[2] == rename("10.61.62.63").replace(".", "-")
    assert rename("ip-10-61-62-63") < rename("ip-10-61-62-7")


def test_ranks_of_a_pod_are_no_address() -> None:
    rename = renaming_of(["walrus-0-1-2-3", "skip-0-1-2-3"])
    assert rename("walrus-0-1-2-3").endswith("-0-1-2-3")
    assert rename("skip-0-1-2-3").endswith("-0-1-2-3")
