"""Quantities are exact, and amounts keep their unit on the way through vectors and back."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.api import quantity
from stromboli.api.errors import InvalidQuantityError
from stromboli.api.resources import (
    CPU,
    MEMORY,
    TOLERANCE,
    UNKNOWN,
    Dimensions,
    amount,
    copies_that_fit,
    fits,
    listed,
    told,
)
from stromboli.api.resources import amounts as read_amounts

POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

digits = st.integers(min_value=0, max_value=10**12)
#: integers that float64 holds exactly
exact = st.integers(min_value=0, max_value=2**53)


class TestParse:
    @given(digits, st.integers(0, 999), st.sampled_from(sorted(POWERS)))
    def test_decimal_suffix(self, whole: int, thousandths: int, suffix: str) -> None:
        expected = (Fraction(whole) + Fraction(thousandths, 1000)) * Fraction(10) ** POWERS[suffix]
        assert quantity.parse(f"{whole}.{thousandths:03}{suffix}") == expected

    @given(digits, st.sampled_from(sorted(BINARY)))
    def test_binary_suffix(self, whole: int, suffix: str) -> None:
        assert quantity.parse(f"{whole}{suffix}") == whole * 2 ** BINARY[suffix]

    @given(digits, st.integers(-18, 18), st.sampled_from("eE"))
    def test_exponent(self, whole: int, exponent: int, letter: str) -> None:
        assert quantity.parse(f"{whole}{letter}{exponent}") == whole * Fraction(10) ** exponent

    @given(st.integers(-(10**15), 10**15))
    def test_integer_is_as_good_as_its_text(self, number: int) -> None:
        assert quantity.parse(number) == quantity.parse(str(number)) == number

    @given(st.floats(min_value=1e-9, max_value=1e18))
    def test_float_means_its_decimal_digits(self, number: float) -> None:
        assert float(quantity.parse(number)) == number

    def test_a_tenth_is_a_tenth(self) -> None:
        assert quantity.parse(0.1) == quantity.parse("100m") == Fraction(1, 10)

    @pytest.mark.parametrize(("text", "value"), [("+2", 2), ("-2", -2), (".5", Fraction(1, 2)), ("5.", 5)])
    def test_signs_and_bare_points(self, text: str, value: Fraction) -> None:
        assert quantity.parse(text) == value

    def test_capital_e_is_a_suffix_alone_and_an_exponent_with_digits(self) -> None:
        assert quantity.parse("1E") == 10**18
        assert quantity.parse("1E3") == 1000

    @pytest.mark.parametrize(
        "text", ["", "-", ".", "1x", "1 Gi", "1gi", "1K", "1e", "1_000", "0x10", "1,5", "None", "٣"]
    )
    def test_refuses(self, text: str) -> None:
        with pytest.raises(InvalidQuantityError) as caught:
            quantity.parse(text)
        assert caught.value.value == text
        assert repr(text) in str(caught.value)

    @pytest.mark.parametrize("value", [True, False, float("nan"), float("inf")])
    def test_refuses_what_is_no_number(self, value: float) -> None:
        assert [quantity.parse(0.0), quantity.parse(1.0)] == [0, 1], "equal to False and True, and cached"
        with pytest.raises(InvalidQuantityError):
            quantity.parse(value)

    @pytest.mark.parametrize("text", ["1e1000", "1e-1000", "9" * 5000])
    def test_refuses_sizes_that_no_cluster_has(self, text: str) -> None:
        with pytest.raises(InvalidQuantityError):
            quantity.parse(text)


class TestRounding:
    @given(st.integers(0, 10**9), st.sampled_from(["n", "u", "m"]))
    def test_up_to_the_next_unit(self, number: int, suffix: str) -> None:
        value = quantity.parse(f"{number}{suffix}")
        assert 0 <= quantity.units(f"{number}{suffix}") - value < 1
        assert 0 <= quantity.milli(f"{number}{suffix}") - value * 1000 < 1

    def test_the_smallest_request_counts(self) -> None:
        assert quantity.milli("1n") == 1
        assert quantity.units("1m") == 1

    @pytest.mark.parametrize(
        ("resource", "value", "expected"),
        [
            ("cpu", "1500m", 1500),
            ("cpu", 2, 2000),
            ("memory", "1Gi", 2**30),
            ("memory", "1.5", 2),
            ("pods", "110", 110),
            ("nvidia.com/gpu", "1", 1000),
            ("ephemeral-storage", "1k", 1_000_000),
        ],
    )
    def test_unit_of_a_resource(self, resource: str, value: str | int, expected: int) -> None:
        assert amount(resource, value) == expected


class TestFormat:
    @given(exact)
    def test_milli(self, number: int) -> None:
        assert quantity.milli(quantity.format_milli(number)) == number

    @given(exact)
    def test_bytes(self, number: int) -> None:
        assert quantity.units(quantity.format_bytes(number)) == number

    @pytest.mark.parametrize(
        ("number", "text"), [(0, "0"), (2**30, "1Gi"), (3 * 2**29, "1536Mi"), (1000, "1000"), (2**60, "1Ei")]
    )
    def test_bytes_take_the_largest_exact_suffix(self, number: int, text: str) -> None:
        assert quantity.format_bytes(number) == text

    @pytest.mark.parametrize(("number", "text"), [(0, "0"), (1, "1m"), (1500, "1500m"), (2000, "2")])
    def test_milli_is_written_when_needed(self, number: int, text: str) -> None:
        assert quantity.format_milli(number) == text


class TestVectors:
    @given(st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu", "a.io/b"]), exact))
    def test_back_to_quantities(self, amounts: dict[str, int]) -> None:
        dimensions = Dimensions(amounts)
        vector = dimensions.vector(amounts)
        read = {name: amount(name, text) for name, text in dimensions.quantities(vector).items()}
        assert read == {"cpu": 0, "memory": 0} | {
            name: value for name, value in amounts.items() if value or name in ("cpu", "memory")
        }

    def test_columns(self) -> None:
        dimensions = Dimensions(["nvidia.com/gpu", "memory"])
        assert dimensions.names == ["cpu", "memory", "pods", "nvidia.com/gpu"]
        assert dimensions.vector({"nvidia.com/gpu": 3, "a.io/b": 2}).tolist() == [0, 0, 0, 3]
        assert not dimensions.cover(["cpu", "a.io/b"])

    def test_what_nobody_offers_has_one_column(self) -> None:
        dimensions = Dimensions([UNKNOWN])
        assert dimensions.cover(["a.io/b"])
        assert dimensions.vector({"a.io/b": 2, "a.io/c": 3, "cpu": 1}).tolist() == [1, 0, 0, 5]
        assert dimensions.quantities(dimensions.vector({"a.io/b": 2})) == {"cpu": "0", "memory": "0"}

    def test_amounts_are_in_the_units_of_their_dimensions(self) -> None:
        listed = {"cpu": "1", "memory": "1Ki", "a.io/b": 2, "requests.cpu": "1", "a.io/c": "many", "pods": "-1"}
        assert read_amounts(listed) == {"cpu": 1000, "memory": 1024, "a.io/b": 2000}


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 27_200, "27.2"),
        ("cpu", 1, "0.001"),
        ("cpu", -0.4, "0"),
        ("cpu", 12_345_678, "12,346"),
        ("cpu", np.inf, "unlimited"),
        ("pods", 110, "110"),
        ("nvidia.com/gpu", 8_000, "8"),
        ("memory", 137_438_953_472, "128Gi"),
        ("memory", 65_535 << 20, "63.999Gi"),
        ("memory", 1.5 * 2**40, "1.5Ti"),
        ("ephemeral-storage", (200 << 30) * 1000, "200Gi"),
        ("hugepages-2Mi", (4 << 20) * 1000, "4Mi"),
    ],
)
def test_amounts_for_people(resource: str, amount: float, text: str) -> None:
    assert told(resource, amount) == text


def test_quantities_for_people() -> None:
    written = {
        "cpu": "27200m",
        "memory": "137438953472",
        "requests.memory": "1048576Ki",
        "requests.cpu": 2,
        "x": "many",
    }
    assert listed(written) == "27.2 cpu, 128Gi memory, 1Gi requests.memory, 2 requests.cpu, many x"
    assert listed({}) == "nothing"


rooms = st.lists(st.integers(-2, 3), min_size=5, max_size=5).map(lambda row: np.array(row, dtype=float))
vectors = st.lists(st.integers(0, 3), min_size=5, max_size=5).map(lambda row: np.array(row, dtype=float))


class TestFits:
    @given(vectors, st.lists(rooms, min_size=1, max_size=12), st.sampled_from([(), (CPU, MEMORY)]))
    def test_every_column_alone(self, request_: np.ndarray, rows: list[np.ndarray], always: tuple[int, ...]) -> None:
        """In few nodes and in many; what is not requested is not compared, unless it always is."""
        matrix = np.stack(rows, axis=1)
        expected = [all(room[i] >= asked for i, asked in enumerate(request_) if asked or i in always) for room in rows]
        assert fits(request_, matrix, always).tolist() == expected
        assert [bool(fits(request_, room, always)) for room in rows] == expected
        assert (copies_that_fit(request_, matrix, always) >= 1).tolist() == [e or not request_.any() for e in expected]

    def test_tolerance(self) -> None:
        request = np.array([1000.0, 0, 1])
        assert fits(request, np.array([1000 - TOLERANCE / 2, 0, 1]))
        assert not fits(request, np.array([1000 - 1.0, 0, 1]))
